//! Seeded sequences of operations, the same on every machine.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use genstore_tests::model::{self, Done, Failure, Options};
use genstore_tests::random::Random;
use store_core::StoreOptions;
use store_core::planted::Bug;

/// How many sequences there are, and how long the shortest one is.
const SEQUENCES: u64 = 10_000;
const OPERATIONS: usize = 30;

/// The bytes of a sequence.
pub(crate) fn sequence(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let operations = OPERATIONS + random.below(4);
    random.bytes(operations * model::BYTES)
}

/// Runs sequences on all cores until they are done or one fails.
fn run(sequences: u64, options: &Options) -> Result<Done, (u64, Failure)> {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Done::default());
    let failed: Mutex<Option<(u64, Failure)>> = Mutex::new(None);
    let work = || {
        while failed.lock().unwrap().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= sequences {
                return;
            }
            match model::run(&sequence(seed), options) {
                Ok(done) => {
                    let mut total = total.lock().unwrap();
                    assert!(
                        done.operations >= OPERATIONS as u64,
                        "a sequence is too short"
                    );
                    total.sequences += 1;
                    total.operations += done.operations;
                    total.checkpoints += done.checkpoints;
                }
                Err(failure) => *failed.lock().unwrap() = Some((seed, failure)),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap() {
        Some(failure) => Err(failure),
        None => Ok(total.into_inner().unwrap()),
    }
}

#[test]
fn ten_thousand_sequences_agree_with_the_model() {
    let started = std::time::Instant::now();
    let done = match run(SEQUENCES, &model::honest) {
        Ok(done) => done,
        Err((seed, failure)) => panic!("sequence {seed}: {failure}"),
    };
    assert_eq!(done.sequences, SEQUENCES);
    assert!(done.operations >= SEQUENCES * OPERATIONS as u64);
    // Most of it must be about checkpoints, or little was compared.
    assert!(
        done.checkpoints >= SEQUENCES * 4,
        "only {} checkpoints were made",
        done.checkpoints
    );
    println!("{done:?} in {:?}", started.elapsed());
}

/// The model notices a planted bug, and shows it in a few operations.
fn finds(bug: Bug) {
    let options = move || StoreOptions::new().planted(bug);
    let (seed, failure) = run(300, &options).expect_err("the planted bug was not found");
    assert!(
        failure.problem.contains("the parent"),
        "sequence {seed}: {failure}"
    );
    assert!(
        failure.operations.len() <= 12,
        "sequence {seed} could be shorter: {failure}"
    );
}

#[test]
fn a_planted_wrong_parent_is_found() {
    finds(Bug::WrongParent);
}

#[test]
fn a_planted_stale_parent_is_found() {
    finds(Bug::StaleParent);
}
