//! The cases that broke other systems, each through the binary. `list.md` is the list; the tests here keep it whole.

mod activate;
mod capture;
mod command_line;
mod concurrency;
mod damage;
mod durability;
mod restore;
mod selector;
mod upkeep;

use std::collections::BTreeMap;
use std::fs;

use genstore_tests::source;

/// Every number of the list that the project was given.
const NUMBERS: [&str; 83] = [
    "004", "132", "001", "096", "097", "021", "037", "079", "092", "015", "019", "055", "058",
    "078", "086", "017", "051", "052", "057", "067", "075", "099", "102", "103", "106", "129",
    "016", "018", "064", "122", "012", "014", "066", "080", "081", "094", "113", "008", "009",
    "061", "062", "074", "091", "115", "116", "005", "022", "101", "006", "084", "088", "089",
    "095", "112", "130", "007", "083", "118", "039", "040", "042", "044", "045", "046", "047",
    "048", "049", "030", "031", "032", "033", "010", "011", "087", "125", "126", "024", "025",
    "068", "108", "114", "120", "124",
];

/// The list: number → status.
fn list() -> BTreeMap<String, String> {
    let path = source::workspace().join("tests/cases/list.md");
    let text = fs::read_to_string(path).unwrap();
    let mut rows = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit())
    {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{line}");
        let twice = rows.insert(cells[0].to_owned(), cells[3].to_owned());
        assert!(twice.is_none(), "{} is listed twice", cells[0]);
    }
    rows
}

/// The numbers of the `case_NNN_…` functions in this directory that are tests.
fn tested() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for file in source::rust()
        .into_iter()
        .filter(|file| file.path.starts_with("tests/cases/"))
    {
        let lines: Vec<_> = file.text.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            if let Some(name) = pair[1].strip_prefix("fn case_") {
                assert_eq!(pair[0], "#[test]", "{}: {} is no test", file.path, pair[1]);
                let number = name.split('_').next().unwrap_or_default();
                found.insert(number.to_owned(), pair[1].to_owned());
            }
        }
    }
    found
}

#[test]
fn the_list_holds_every_number() {
    let listed: Vec<_> = list().into_keys().collect();
    let mut numbers: Vec<_> = NUMBERS.map(str::to_owned).to_vec();
    numbers.sort();
    assert_eq!(listed, numbers);
}

#[test]
fn every_case_is_tested_or_named_as_still_to_come() {
    let (list, tested) = (list(), tested());
    for (number, status) in &list {
        match status.as_str() {
            "here" => assert!(
                tested.contains_key(number),
                "no test is named case_{number}_…"
            ),
            later => assert!(
                later
                    .strip_prefix("later: ")
                    .is_some_and(|topic| !topic.is_empty()),
                "{number}: {later}"
            ),
        }
    }
    for (number, function) in &tested {
        assert_eq!(
            list.get(number).map(String::as_str),
            Some("here"),
            "{function} is not listed as `here`"
        );
    }
}
