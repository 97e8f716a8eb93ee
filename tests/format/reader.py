#!/usr/bin/env python3
"""A second reader of genstore stores, written from docs/format.md alone.

It shares no code and no library with genstore: Python's standard library, a BLAKE3 of its own, and the system's libzstd.
It checks every rule of the page that bytes at rest can break, and prints what it found as one JSON document.

    reader.py STORE                 check a store, print its content
    reader.py --examples FORMAT.MD  decode the worked examples of the page, print their values
    reader.py --hash FILE...        print the BLAKE3 of files

Exit codes: 0 everything is as the page says; 1 something is not; 77 this machine has no zstd.
"""

import array
import ctypes
import ctypes.util
import json
import os
import re
import stat
import struct
import sys

# --- BLAKE3, hash mode. Many chunks at once: each Python integer holds one 32-bit word of every chunk, 64 bits apart. ---

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIXES = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
LANES_AT_ONCE = 1024


def compress(chaining, message, counter, length, flags, ones):
    """The compression function on all lanes; `ones` has a 1 in every lane."""
    mask = ones * 0xFFFFFFFF
    v = list(chaining) + [word * ones for word in IV[:4]]
    v += [counter & mask, (counter >> 32) & mask, length * ones, flags * ones]
    for turn in range(7):
        for i, (a, b, c, d) in enumerate(MIXES):
            va, vb, vc, vd = v[a], v[b], v[c], v[d]
            va = (va + vb + message[2 * i]) & mask
            vd ^= va
            vd = (vd >> 16 | vd << 16) & mask
            vc = (vc + vd) & mask
            vb ^= vc
            vb = (vb >> 12 | vb << 20) & mask
            va = (va + vb + message[2 * i + 1]) & mask
            vd ^= va
            vd = (vd >> 8 | vd << 24) & mask
            vc = (vc + vd) & mask
            vb ^= vc
            vb = (vb >> 7 | vb << 25) & mask
            v[a], v[b], v[c], v[d] = va, vb, vc, vd
        if turn < 6:
            message = [message[j] for j in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)]


def ones_for(lanes):
    return int.from_bytes(b"\1\0\0\0\0\0\0\0" * lanes, "little")


def lanes_of(values):
    words = array.array("Q", values)
    if sys.byteorder == "big":
        words.byteswap()
    return int.from_bytes(words.tobytes(), "little")


def values_of(lanes, count):
    words = array.array("Q", lanes.to_bytes(count * 8, "little"))
    if sys.byteorder == "big":
        words.byteswap()
    return words


def full_chunks(data, first, count):
    """Chaining values of `count` whole chunks from chunk number `first`, as 8 rows of `count` words."""
    words = array.array("I", data[first * 1024:(first + count) * 1024])
    if sys.byteorder == "big":
        words.byteswap()
    ones = ones_for(count)
    counter = lanes_of(range(first, first + count))
    chaining = [word * ones for word in IV]
    for block in range(16):
        message = [lanes_of(words[block * 16 + word::256]) for word in range(16)]
        flags = (CHUNK_START if block == 0 else 0) | (CHUNK_END if block == 15 else 0)
        chaining = compress(chaining, message, counter, 64, flags, ones)
    return [values_of(row, count) for row in chaining]


def last_chunk(data, number, flags_at_end):
    chaining = list(IV)
    blocks = [data[at:at + 64] for at in range(0, len(data), 64)] or [b""]
    for i, block in enumerate(blocks):
        flags = (CHUNK_START if i == 0 else 0) | (CHUNK_END | flags_at_end if i == len(blocks) - 1 else 0)
        message = list(struct.unpack("<16I", block.ljust(64, b"\0")))
        chaining = compress(chaining, message, number, len(block), flags, 1)
    return chaining


def blake3(data):
    data = bytes(data)
    whole = max(0, (len(data) - 1) // 1024)
    tail = data[whole * 1024:]
    if whole == 0:
        return struct.pack("<8I", *last_chunk(tail, 0, ROOT))
    rows = [array.array("Q") for _ in range(8)]
    for first in range(0, whole, LANES_AT_ONCE):
        for row, more in zip(rows, full_chunks(data, first, min(LANES_AT_ONCE, whole - first))):
            row.extend(more)
    for row, word in zip(rows, last_chunk(tail, whole, 0)):
        row.append(word)
    while len(rows[0]) > 1:
        count = len(rows[0])
        pairs = count // 2
        left = [row[0:2 * pairs:2] for row in rows]
        right = [row[1:2 * pairs:2] for row in rows]
        ones = ones_for(pairs)
        message = [lanes_of(row) for row in left + right]
        flags = PARENT | (ROOT if count == 2 else 0)
        parents = compress([word * ones for word in IV], message, 0, 64, flags, ones)
        odd = [row[-1] for row in rows] if count % 2 else None
        rows = [values_of(row, pairs) for row in parents]
        if odd:
            for row, word in zip(rows, odd):
                row.append(word)
    return struct.pack("<8I", *(row[0] for row in rows))


# --- zstd -------------------------------------------------------------------------------------------------------------

class NoZstd(Exception):
    pass


def find_zstd():
    for name in ("libzstd.so.1", ctypes.util.find_library("zstd")):
        try:
            library = ctypes.CDLL(name) if name else None
        except OSError:
            library = None
        if library:
            return CtypesZstd(library)
    for module in ("compression.zstd", "zstandard"):
        try:
            return ModuleZstd(__import__(module, fromlist=["x"]), module)
        except ImportError:
            pass
    raise NoZstd("no libzstd.so.1, no compression.zstd and no zstandard: install libzstd1")


class CtypesZstd:
    def __init__(self, library):
        self.library = library
        for name in ("ZSTD_decompress", "ZSTD_findFrameCompressedSize"):
            getattr(library, name).restype = ctypes.c_size_t
        library.ZSTD_isError.restype = ctypes.c_uint
        library.ZSTD_isError.argtypes = [ctypes.c_size_t]
        library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        library.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def frame(self, stored, raw_length):
        stored = bytes(stored)
        size = self.library.ZSTD_findFrameCompressedSize(stored, len(stored))
        check(not self.library.ZSTD_isError(size) and size == len(stored), "a block is not exactly one zstd frame")
        raw = ctypes.create_string_buffer(raw_length or 1)
        got = self.library.ZSTD_decompress(raw, raw_length, stored, len(stored))
        check(not self.library.ZSTD_isError(got), "a zstd frame does not decompress into its raw length")
        check(got == raw_length, "a zstd frame has another length than the block table says")
        return raw.raw[:raw_length]


class ModuleZstd:
    def __init__(self, module, name):
        self.module, self.name = module, name

    def frame(self, stored, raw_length):
        if self.name == "zstandard":
            raw = self.module.ZstdDecompressor().decompress(bytes(stored), max_output_size=raw_length)
        else:
            raw = self.module.decompress(bytes(stored))
        check(len(raw) == raw_length, "a zstd frame has another length than the block table says")
        return raw


# --- section 1: primitives --------------------------------------------------------------------------------------------

class Wrong(Exception):
    """The bytes are not what docs/format.md says."""


def check(condition, problem):
    if not condition:
        raise Wrong(problem)


class within:
    """Prefixes what goes wrong inside with the place."""

    def __init__(self, place):
        self.place = place

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is Wrong:
            raise Wrong(f"{self.place}: {error}") from None


class Cursor:
    def __init__(self, data, tag=None):
        self.data, self.at = data, 0
        if tag is not None:
            check(self.take(4) == tag, f"tag is not {tag.decode()}")

    def take(self, count):
        check(self.at + count <= len(self.data), "ends too early")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def u8(self):
        return self.number("B")

    def u16(self):
        return self.number("H")

    def u32(self):
        return self.number("I")

    def u64(self):
        return self.number("Q")

    def id(self):
        return self.take(32)

    def time(self):
        seconds, nanoseconds = self.number("q"), self.u32()
        check(nanoseconds < 1_000_000_000, "nanoseconds out of range")
        return [seconds, nanoseconds]

    def bytes16(self, most=65535):
        length = self.u16()
        check(length <= most, "a byte string is too long")
        return self.take(length)

    def bytes32(self, most=1 << 26):
        length = self.u32()
        check(length <= most, "a byte string is too long")
        return self.take(length)

    def flag(self):
        value = self.u8()
        check(value <= 1, "a flag is neither 0 nor 1")
        return bool(value)

    def opt(self, read):
        return read() if self.flag() else None

    def list(self, read):
        count = self.u32()
        check(count <= len(self.data), "a count is larger than what follows")
        return [read() for _ in range(count)]

    def end(self):
        check(self.at == len(self.data), "bytes left over")


def ascending(values, what):
    check(all(a < b for a, b in zip(values, values[1:])), f"{what} are not sorted, or one is there twice")


def path_is_relative(path):
    parts = path.split(b"/")
    return all(p not in (b"", b".", b"..") and b"\0" not in p and len(p) <= 4096 for p in parts)


def source_and_host(cursor):
    source, host = cursor.bytes32(4096), cursor.bytes16(255)
    check(source == b"/" or (source[:1] == b"/" and path_is_relative(source[1:])), "the source is no canonical path")
    return source, host


# --- section 5 and 6: content, trees and what hangs on them -----------------------------------------------------------

MIB = 1 << 20
MAX_CHUNK, MAX_TREE, MAX_SMALL = 8 * MIB, 64 * MIB, MIB


def content(cursor):
    form = cursor.u8()
    check(form <= 2, "unknown form of content")
    return (form, cursor.id() if form else None)


def chunk_list(data):
    cursor = Cursor(data, b"lst1")
    level = cursor.u8()
    check(level < 8, "a chunk list is too deep")
    rows = cursor.list(lambda: (cursor.u64(), cursor.id()))
    cursor.end()
    check(rows, "a chunk list without rows")
    check(all(length > 0 for length, _ in rows), "a row of a chunk list is empty")
    if level == 0:
        check(all(length <= MAX_CHUNK for length, _ in rows), "a chunk is over 8 MiB")
    return {"level": level, "rows": rows}


def tree_entry(cursor):
    kind, flags = cursor.u8(), cursor.u8()
    check(kind in (1, 2, 3), "unknown kind of entry")
    xattrs, holes = flags >> 1 & 3, flags >> 3 & 3
    check(flags < 32 and xattrs < 3 and holes < 3, "unknown flags of an entry")
    check(kind == 1 or holes == 0, "holes of something that is not a file")
    name = cursor.bytes16(4096)
    check(name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name, "bad name of an entry")
    mode = cursor.u16()
    check(mode <= 0o7777, "bad permission bits")
    entry = {"name": name, "kind": {1: "file", 2: "dir", 3: "link"}[kind], "mode": mode, "mtime": cursor.time()}
    entry["owner"] = [cursor.u32(), cursor.u32()] if flags & 1 else None
    entry["xattrs"] = cursor.id() if xattrs == 2 else ("not captured", "none")[xattrs]
    entry["holes"] = cursor.id() if holes == 2 else ("not captured", "none")[holes]
    if kind == 1:
        entry["size"] = cursor.u64()
        entry["content"] = content(cursor)
        check((entry["size"] == 0) == (entry["content"][0] == 0), "size and form of content disagree")
        check(entry["content"][0] != 1 or entry["size"] <= MAX_CHUNK, "a single chunk over 8 MiB")
    elif kind == 2:
        entry["tree"] = cursor.id()
    else:
        entry["target"] = cursor.bytes16()
        check(entry["target"] and b"\0" not in entry["target"], "bad target of a link")
    return entry


def tree(data):
    cursor = Cursor(data, b"tre1")
    entries = cursor.list(lambda: tree_entry(cursor))
    cursor.end()
    ascending([entry["name"] for entry in entries], "entries of a tree")
    return entries


def attributes(data):
    cursor = Cursor(data, b"xat1")
    rows = cursor.list(lambda: (cursor.bytes16(), cursor.bytes32()))
    cursor.end()
    check(rows, "an attribute object without attributes")
    ascending([name for name, _ in rows], "attributes")
    return rows


def holes(data):
    cursor = Cursor(data, b"hol1")
    rows = cursor.list(lambda: (cursor.u64(), cursor.u64()))
    cursor.end()
    check(rows, "a holes object without holes")
    for offset, length in rows:
        check(offset % 4096 == 0 and length % 4096 == 0 and length > 0, "a hole is not aligned")
    check(all(a + n < b for (a, n), (b, _) in zip(rows, rows[1:])), "holes touch or are not sorted")
    return rows


def hard_links(data):
    cursor = Cursor(data, b"hln1")
    groups = cursor.list(lambda: cursor.list(cursor.bytes32))
    cursor.end()
    check(groups, "a hard-link object without groups")
    for group in groups:
        check(len(group) >= 2, "a hard-link group of fewer than two")
        ascending(group, "paths of a hard-link group")
    ascending([group[0] for group in groups], "hard-link groups")
    paths = [path for group in groups for path in group]
    check(len(set(paths)) == len(paths), "a path is in two hard-link groups")
    check(all(map(path_is_relative, paths)), "bad path in a hard-link group")
    return groups


# --- section 7: checkpoints -------------------------------------------------------------------------------------------

def checkpoint(data):
    cursor = Cursor(data, b"ckp1")
    record = {"nonce": cursor.take(16), "parent": cursor.opt(cursor.id), "time": cursor.time(),
              "message": cursor.bytes32(65536), "key": cursor.opt(lambda: cursor.bytes16(1024))}
    check(record["key"] != b"", "an empty key")
    record["role"], record["actor"] = cursor.u8(), cursor.u8()
    check(record["role"] <= 2 and record["actor"] <= 4, "unknown role or actor")
    record["source"], record["host"] = source_and_host(cursor)
    record["tree"] = cursor.id()
    record["root_mode"], record["root_mtime"] = cursor.u16(), cursor.time()
    check(record["root_mode"] <= 0o7777, "bad permission bits of the root")
    record["root_owner"] = cursor.opt(lambda: [cursor.u32(), cursor.u32()])
    record["root_xattrs"] = three_valued(cursor)
    record["counts"] = {name: cursor.u64() for name in ("files", "dirs", "links", "bytes", "left_out")}
    record["complete"] = cursor.flag()
    for name in ("rules", "left_out"):
        record[name] = cursor.opt(cursor.id)
    record["hard_links"] = three_valued(cursor)
    for name in ("wrote", "rolled_back_to"):
        record[name] = cursor.opt(cursor.id)
    cursor.end()
    return record


def three_valued(cursor):
    form = cursor.u8()
    check(form <= 2, "neither not captured, none nor present")
    return cursor.id() if form == 2 else ("not captured", "none")[form]


def rules(data):
    cursor = Cursor(data, b"rul1")
    rows = cursor.list(lambda: (cursor.bytes32(), cursor.bytes32()))
    cursor.end()
    check(rows, "a rules object without rules")
    for where, _ in rows:
        check(where in (b"-default", b"-exclude", b"-option") or path_is_relative(where), "a rule from nowhere")
    return rows


def left_out(data):
    cursor = Cursor(data, b"out1")
    rows = cursor.list(lambda: (cursor.bytes32(), cursor.u8(), cursor.bytes32()))
    cursor.end()
    check(rows, "a left-out object without paths")
    ascending([path for path, _, _ in rows], "left-out paths")
    for path, reason, rule in rows:
        check(path == b"" or path_is_relative(path), "bad left-out path")
        check(1 <= reason <= 8, "unknown reason for leaving out")
        if reason == 2:
            check(rule in (b"socket", b"fifo", b"char device", b"block device"), "unknown special file")
    return rows


def wrote(data):
    cursor = Cursor(data, b"wro1")
    rows = cursor.list(lambda: (cursor.bytes32(), cursor.opt(lambda: cursor.take(32))))
    cursor.end()
    check(rows and all(path_is_relative(path) for path, _ in rows), "bad written path, or none")
    ascending([path for path, _ in rows], "written paths")
    return rows


# --- section 8: catalog -----------------------------------------------------------------------------------------------

def map_node(data):
    cursor = Cursor(data, b"map1")
    level = cursor.u8()
    check(level < 16, "a map is too deep")
    if level == 0:
        rows = cursor.list(lambda: (cursor.bytes16(), cursor.bytes32()))
    else:
        rows = cursor.list(lambda: (cursor.bytes16(), cursor.id(), cursor.u64()))
    cursor.end()
    check(1 <= len(rows) <= 64, "a node has no rows, or more than 64")
    check(level == 0 or all(count > 0 for _, _, count in rows), "a row counts nothing")
    ascending([row[0] for row in rows], "keys of a node")
    return {"level": level, "rows": rows}


def catalog_root(data):
    cursor = Cursor(data, b"cat1")
    root = {name: cursor.opt(cursor.id) for name in ("lineages", "sources", "ids")}
    cursor.end()
    return root


def lineage(data):
    cursor = Cursor(data, b"lin1")
    value = {"name": cursor.bytes16(4096)}
    value["source"], value["host"] = source_and_host(cursor)
    value["identity"] = cursor.opt(lambda: [cursor.u64(), cursor.u64()])
    value["next"] = cursor.u64()
    check(value["name"] and b"\0" not in value["name"] and b"\n" not in value["name"], "bad name of a lineage")
    state = cursor.u8()
    check(state <= 2, "unknown state of a lineage")
    value["state"] = ("active", "moving", "archived")[state]
    if state == 1:
        value["moving_to"] = cursor.take(16)
    if state == 2:
        value["reason"], value["since"] = cursor.bytes32(4096), cursor.time()
    for name in ("checkpoints", "keys", "tags"):
        value[name] = cursor.opt(cursor.id)
    cursor.end()
    return value


TAG_LIKE_REVISION = re.compile(r"[0-9a-f]{4,64}|latest|first")


def check_tag(tag):
    try:
        text = tag.decode("utf-8")
    except UnicodeDecodeError:
        raise Wrong("a tag is not UTF-8") from None
    check(1 <= len(tag) <= 255 and text[0] not in "-@" and "~" not in text, "bad tag")
    check(not TAG_LIKE_REVISION.fullmatch(text), "a tag looks like something else")
    check(not any(c.isspace() or ord(c) < 32 or 127 <= ord(c) < 160 for c in text), "white space in a tag")


def checkpoint_entry(data):
    cursor = Cursor(data)
    entry = {"id": cursor.id(), "time": cursor.time()}
    flags = cursor.u8()
    check(flags <= 1, "unknown flags of a checkpoint entry")
    entry["pinned"] = bool(flags)
    entry["tags"] = cursor.list(cursor.bytes16)
    entry["note"] = cursor.bytes32(4096)
    entry["purged"] = cursor.opt(cursor.id)
    cursor.end()
    check(len(entry["tags"]) <= 32, "too many tags")
    ascending(entry["tags"], "tags")
    for tag in entry["tags"]:
        check_tag(tag)
    return entry


# --- section 9: manifest ----------------------------------------------------------------------------------------------

GENERATION = re.compile(r"gen-(?!0{10})[0-9]{10}-[0-9a-f]{32}")
HEX16, HEX32 = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{64}")
RFC3339 = re.compile(r"-?[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z")
KINDS = {"init", "checkpoint", "heal", "activate", "undo", "lineage", "tag", "pin", "note",
         "prune", "policy", "maintain", "purge", "adopt", "import", "repair", "rollback"}
REQUESTS = {
    "init": set(),
    "checkpoint": {"checkpoint", "lineage", "number"},
    "heal": {"checkpoint", "lineage", "number"},
    "tag": {"checkpoint", "lineage", "number", "tag", "action", "moved_from"},
    "pin": {"checkpoint", "lineage", "number", "value", "was"},
    "note": {"checkpoint", "lineage", "number", "note", "was"},
}
# What an undo applied, and the kind whose keys its request has then.
APPLIED = {"drop": "checkpoint", "return": "checkpoint", "activate": "activate", "tag": "tag", "pin": "pin",
           "note": "note", "lineage": "lineage"}


def request_keys(kind, request):
    """The keys that a request of this kind has, or None for kinds that the page reserves for later."""
    if kind == "activate":
        return {"candidate"} | ({"directory"} & set(request))
    if kind == "lineage":
        return {"lineage", "action", "to" if request.get("action") == "rename" else "reason"}
    if kind == "undo":
        check(request.get("applied") in APPLIED, "an undo that applied nothing known")
        return {"undoes", "undone_kind", "applied"} | request_keys(APPLIED[request["applied"]], request)
    return REQUESTS.get(kind)


def no_twice(pairs):
    keys = [key for key, _ in pairs]
    check(len(set(keys)) == len(keys), "a key is there twice")
    return dict(pairs)


def no_float(text):
    raise Wrong(f"{text} is not an integer")


def fields(value, names, what):
    check(isinstance(value, dict), f"{what} is not an object")
    check(set(value) == set(names), f"{what} has other fields: {sorted(set(value) ^ set(names))}")
    return value


def matches(pattern, value, what):
    check(isinstance(value, str) and pattern.fullmatch(value), f"bad {what}: {value!r}")


def number(value, what, least=0):
    check(type(value) is int and value >= least, f"{what} is not a number")


def manifest(data):
    check(len(data) <= 16 * MIB, "the manifest is over 16 MiB")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=no_twice, parse_float=no_float,
                           parse_constant=no_float)
    except (UnicodeDecodeError, ValueError) as error:
        raise Wrong(f"not JSON: {error}") from None
    again = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    check(again.encode("utf-8") == data, "not canonical JSON")
    fields(value, ("catalog created epoch format kept lost nonce operation origin packs parent policy sequence store"
                   " writer").split(), "the manifest")
    check(value["format"] == 1, "format is not 1")
    matches(HEX32, value["catalog"], "catalog")
    matches(RFC3339, value["created"], "created")
    matches(HEX16, value["nonce"], "nonce")
    matches(HEX16, value["store"], "store")
    number(value["sequence"], "sequence", 1)
    generation_or_null(value["parent"], "parent")
    epoch = fields(value["epoch"], ("candidate", "nonce"), "epoch")
    generation_or_null(epoch["candidate"], "epoch.candidate")
    matches(HEX16, epoch["nonce"], "epoch.nonce")
    for kept in value["kept"]:
        fields(kept, ("id", "reason", "since"), "kept")
        matches(GENERATION, kept["id"], "kept.id")
        check(kept["reason"] in ("before", "evidence", "plain"), "unknown reason in kept")
        matches(RFC3339, kept["since"], "kept.since")
    ascending([kept["id"] for kept in value["kept"]], "kept generations")
    for lost in value["lost"]:
        fields(lost, ("object", "reason"), "lost")
        matches(HEX32, lost["object"], "lost.object")
        check(lost["reason"] in ("lost", "purged"), "unknown reason in lost")
    ascending([lost["object"] for lost in value["lost"]], "lost objects")
    manifest_operation(value["operation"])
    if value["origin"] is not None:
        fields(value["origin"], ("generation", "store"), "origin")
        matches(GENERATION, value["origin"]["generation"], "origin.generation")
        matches(HEX16, value["origin"]["store"], "origin.store")
    check(len(value["packs"]) <= 65536, "too many packs")
    for pack in value["packs"]:
        fields(pack, ("bytes", "id", "objects", "state"), "packs")
        matches(HEX32, pack["id"], "packs.id")
        number(pack["bytes"], "packs.bytes", 1)
        number(pack["objects"], "packs.objects", 1)
        check(pack["state"] in ("ok", "missing", "damaged"), "unknown state of a pack")
    ascending([pack["id"] for pack in value["packs"]], "packs")
    manifest_policy(value["policy"])
    writer = fields(value["writer"], ("boot", "host", "pid", "start_ticks", "tool", "uid"), "writer")
    for name in ("boot", "host", "tool"):
        check(isinstance(writer[name], str), f"writer.{name} is not a string")
    for name in ("pid", "start_ticks", "uid"):
        number(writer[name], f"writer.{name}")
    return value


def generation_or_null(value, what):
    if value is not None:
        matches(GENERATION, value, what)


def manifest_operation(operation):
    fields(operation, ("before", "counts", "kind", "request", "retry_of"), "operation")
    generation_or_null(operation["before"], "operation.before")
    check(operation["kind"] in KINDS, "unknown kind of operation")
    check(operation["retry_of"] is None or isinstance(operation["retry_of"], str), "bad operation.retry_of")
    for name, count in operation["counts"].items():
        number(count, f"operation.counts.{name}")
    for name, text in operation["request"].items():
        check(isinstance(text, str), f"operation.request.{name} is not a string")
    kind, request = operation["kind"], operation["request"]
    keys = request_keys(kind, request)
    check(keys is None or set(request) == keys, f"request of {kind} has other keys: {sorted(request)}")
    if keys is not None:
        check_request(APPLIED.get(request.get("applied"), kind), request)


def check_request(kind, request):
    patterns = {"checkpoint": r"[0-9a-f]{64}", "candidate": GENERATION.pattern, "undoes": GENERATION.pattern,
                "number": r"[1-9][0-9]*", "moved_from": r"([1-9][0-9]*)?", "value": r"true|false"}
    patterns.update({name: r"([0-9a-f]{2})*" for name in ("lineage", "note", "directory", "to", "reason")})
    patterns["was"] = r"true|false" if kind == "pin" else patterns["note"]
    patterns["action"] = r"add|remove" if kind == "tag" else r"archive|unarchive|rename"
    for name, text in request.items():
        if name in patterns:
            check(re.fullmatch(patterns[name], text), f"bad operation.request.{name}: {text!r}")


def manifest_policy(policy):
    if policy is None:
        return
    numbers = "keep_daily keep_last keep_monthly keep_weekly keep_within_s max_size_bytes".split()
    fields(policy, [*numbers, "copy_packs", "keep_tags", "writable"], "policy")
    for name in numbers:
        if policy[name] is not None:
            number(policy[name], f"policy.{name}")
    check(isinstance(policy["keep_tags"], list) and all(isinstance(tag, str) for tag in policy["keep_tags"]),
          "policy.keep_tags is not a list of strings")
    for name in ("copy_packs", "writable"):
        check(isinstance(policy[name], bool), f"policy.{name} is not a boolean")


# --- section 4: packs -------------------------------------------------------------------------------------------------

def pack(data, zstd):
    """All objects of a pack, {id: bytes}, each checked against its id."""
    check(len(data) >= 96, "a pack is too short")
    check(data[:8] == b"GENSPACK" and struct.unpack("<II", data[8:16]) == (1, 0), "bad header of a pack")
    at, length, blocks, objects, zero = struct.unpack("<QQIIQ", data[-80:-48])
    check(data[-16:-8] == b"GENSTAIL" and zero == 0, "bad trailer of a pack")
    check(struct.unpack("<Q", data[-8:])[0] == len(data), "the trailer has another file length")
    check(at + length == len(data) - 80 and length == 24 * blocks + 44 * objects, "the index is not where it should be")
    check(objects > 0 and objects <= 1 << 26 and blocks <= 1 << 24, "bad counts of a pack")
    index = data[at:at + length]
    check(blake3(index) == data[-48:-16], "the index does not have its hash")
    raws, expected = [], 16
    for row in range(blocks):
        offset, stored, raw, codec = struct.unpack("<QIIB", index[row * 24:row * 24 + 17])
        check(index[row * 24 + 17:row * 24 + 24] == bytes(7), "padding of a block row is not zero")
        check(offset == expected, "blocks do not follow each other")
        check(raw <= 64 * MIB and codec <= 1, "a block is too large or its codec unknown")
        expected = offset + stored
        check(expected <= at, "a block reaches into the index")
        body = data[offset:expected]
        check(stored == raw if codec == 0 else stored < raw, "a block's stored length does not go with its codec")
        raws.append(body if codec == 0 else zstd.frame(body, raw))
    check(expected == at, "the last block does not end where the index begins")
    return pack_objects(index[24 * blocks:], raws)


def pack_objects(table, raws):
    found, last, used = {}, b"", {}
    for row in range(0, len(table), 44):
        object_id = table[row:row + 32]
        block, offset, length = struct.unpack("<III", table[row + 32:row + 44])
        check(object_id > last, "object rows are not sorted, or one is there twice")
        last = object_id
        check(block < len(raws) and offset + length <= len(raws[block]), "an object lies outside of its block")
        body = raws[block][offset:offset + length]
        check(blake3(body) == object_id, f"object {object_id.hex()} does not have its hash")
        found[object_id] = body
        if length:
            used.setdefault(block, []).append((offset, offset + length))
    for spans in used.values():
        spans.sort()
        check(all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), "objects overlap")
    return found


# --- section 10: stat cache -------------------------------------------------------------------------------------------

def stat_cache(data):
    check(len(data) >= 32 and blake3(data[:-32]) == data[-32:], "the stat cache does not have its hash")
    cursor = Cursor(data[:-32])
    check(cursor.take(8) == b"GENSTATC" and cursor.u32() == 1 and cursor.u32() == 0, "bad header of a stat cache")
    value = {"store": cursor.take(16), "epoch": cursor.take(16), "lineage": cursor.id(), "checkpoint": cursor.id(),
             "rules": cursor.take(32), "walk_start": cursor.time()}
    root = cursor.u64()
    blocks, first = {}, cursor.at
    while cursor.at < len(cursor.data):
        stat_block(cursor, blocks)
    check(root in blocks, "the root is not where the header says")
    check(root - blocks[root]["below"] == first and root + blocks[root]["length"] == len(cursor.data),
          "blocks that belong to no directory")
    value["root"] = blocks[root]
    return value


def stat_block(cursor, blocks):
    start = cursor.at
    block = {"length": cursor.u64()}
    subtree, block["device"], block["tree"] = cursor.u64(), cursor.u64(), cursor.id()
    check(subtree >= block["length"], "a subtree is shorter than its own block")
    block["below"] = subtree - block["length"]
    block["entries"] = cursor.list(lambda: stat_entry(cursor, start, blocks))
    check(cursor.at - start == block["length"], "a block has another length than it says")
    ascending([entry["name"] for entry, _ in block["entries"]], "entries of a block in a stat cache")
    children = [seen for entry, seen in block["entries"] if entry["kind"] == "dir"]
    check(sum(child["below"] + child["length"] for child in children) == block["below"],
          "a directory's blocks are not those of its sub-directories")
    blocks[start] = block


def stat_entry(cursor, start, blocks):
    entry = tree_entry(cursor)
    if entry["kind"] == "dir":
        child = start - cursor.u64()
        check(child in blocks, "a directory's block does not stand before its parent's")
        check(blocks[child]["tree"] == entry["tree"], "a directory's block is of another tree")
        return entry, blocks[child]
    flags = cursor.u8()
    check(flags <= 3, "unknown flags in a stat cache")
    seen = {"racy": bool(flags & 1), "inode": cursor.u64(), "ctime": cursor.time()}
    seen["device"] = cursor.u64() if flags & 2 else None
    return entry, seen


# --- a generation, with everything below it ---------------------------------------------------------------------------

def read(path, limit=1 << 32):
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        check(stat.S_ISREG(os.fstat(fd).st_mode), f"{path} is not a regular file")
        data = file.read(limit + 1)
    check(len(data) <= limit, f"{path} is too large")
    return data


def check_mode(path, kind, mode):
    found = os.lstat(path)
    check(stat.S_IFMT(found.st_mode) == kind, f"{path} is something else")
    check(stat.S_IMODE(found.st_mode) == mode, f"{path} has mode {stat.S_IMODE(found.st_mode):o}, not {mode:o}")
    return found


class Generation:
    def __init__(self, path, name, zstd, packs):
        self.path, self.name = path, name
        check_mode(path, stat.S_IFDIR, 0o700)
        data = read(os.path.join(path, "manifest.json"), 16 * MIB)
        check_mode(os.path.join(path, "manifest.json"), stat.S_IFREG, 0o400)
        check(name[15:] == blake3(data)[:16].hex(), "the id is not the hash of the manifest")
        self.manifest = manifest(data)
        check(self.manifest["sequence"] == int(name[4:14]), "the sequence is not the one in the id")
        self.objects = {}
        expected = {"manifest.json"}
        for row in self.manifest["packs"]:
            file = row["id"] + ".pack"
            if row["state"] == "missing":
                continue
            expected.add(file)
            with within(file):
                found = check_mode(os.path.join(path, file), stat.S_IFREG, 0o400)
                if row["state"] == "damaged":
                    check(found.st_size != row["bytes"], "a pack called damaged has the right size")
                    continue
                check(found.st_size == row["bytes"], "a pack has another size than the manifest says")
                if row["id"] not in packs:
                    body = read(os.path.join(path, file))
                    check(blake3(body).hex() == row["id"], "a pack does not have the hash in its name")
                    packs[row["id"]] = (os.lstat(os.path.join(path, file)).st_ino, pack(body, zstd))
                elif packs[row["id"]][0] != found.st_ino:
                    check(blake3(read(os.path.join(path, file))).hex() == row["id"], "a copied pack lost its hash")
                check(len(packs[row["id"]][1]) == row["objects"], "a pack has another number of objects")
                self.objects.update(packs[row["id"]][1])
        names = set(os.listdir(path))
        check(names == expected, f"other files than the manifest says: {sorted(names ^ expected)}")
        self.lost = {bytes.fromhex(row["object"]) for row in self.manifest["lost"]}

    def get(self, object_id, limit, what):
        check(object_id in self.objects, f"{what} {object_id.hex()} is missing")
        data = self.objects[object_id]
        check(len(data) <= limit, f"{what} {object_id.hex()} is over its limit")
        return data

    def map_rows(self, top):
        """All rows of a map, in order."""
        if top is None:
            return []
        with within(f"map {top.hex()[:12]}"):
            return self.node_rows(top, None)

    def node_rows(self, node_id, level):
        node = map_node(self.get(node_id, MAX_SMALL, "map node"))
        check(level is None or node["level"] == level, "leaves of a map are not on one level")
        if node["level"] == 0:
            return node["rows"]
        rows = []
        for i, (key, child, count) in enumerate(node["rows"]):
            below = self.node_rows(child, node["level"] - 1)
            check(below[0][0] == key, "a row's key is not the first one under it")
            check(len(below) == count, "a row counts its rows wrongly")
            after = node["rows"][i + 1][0] if i + 1 < len(node["rows"]) else None
            check(after is None or below[-1][0] < after, "a key stands under the wrong row")
            rows += below
        return rows

    def file_content(self, size, form, content_id):
        if form == 0:
            return b""
        if form == 1:
            body = self.get(content_id, MAX_CHUNK, "chunk")
        else:
            body = b"".join(self.list_chunks(content_id, None))
        check(len(body) == size, "a file's content has another length than its entry says")
        return body

    def list_chunks(self, list_id, level):
        value = chunk_list(self.get(list_id, MAX_SMALL, "chunk list"))
        check(level is None or value["level"] == level, "a chunk list stands on the wrong level")
        check(level is not None or len(value["rows"]) >= 2, "the top of a file's chunk lists has only one row")
        chunks = []
        for length, row_id in value["rows"]:
            if value["level"] == 0:
                below = [self.get(row_id, MAX_CHUNK, "chunk")]
            else:
                below = self.list_chunks(row_id, value["level"] - 1)
            check(sum(map(len, below)) == length, "a row of a chunk list has another length")
            chunks += below
        return chunks

    def walk(self, tree_id, prefix, found, depth=0):
        check(depth < 4096, "a tree is too deep")
        for entry in tree(self.get(tree_id, MAX_TREE, "tree")):
            path = prefix + entry["name"]
            with within(path.decode("utf-8", "backslashreplace")):
                meta = {"kind": entry["kind"], "mode": entry["mode"], "mtime": entry["mtime"]}
                for name, decode in (("xattrs", attributes), ("holes", holes)):
                    if isinstance(entry[name], bytes):
                        decode(self.get(entry[name], MAX_TREE, name))
                if entry["kind"] == "file":
                    body = self.file_content(entry["size"], *entry["content"])
                    meta["size"] = entry["size"]
                    single = entry["content"][0] == 1
                    meta["blake3"] = (entry["content"][1] if single else blake3(body)).hex()
                elif entry["kind"] == "link":
                    meta["target"] = entry["target"].hex()
                found[path] = meta
                if entry["kind"] == "dir":
                    self.walk(entry["tree"], path + b"/", found, depth + 1)

    def check_record(self, record_id):
        record = checkpoint(self.get(record_id, MAX_SMALL, "checkpoint"))
        found = {}
        self.walk(record["tree"], b"", found)
        out = []
        if record["left_out"] is not None:
            out = left_out(self.get(record["left_out"], MAX_TREE, "left-out object"))
        if record["rules"] is not None:
            rules(self.get(record["rules"], MAX_TREE, "rules object"))
        if isinstance(record["hard_links"], bytes):
            hard_links(self.get(record["hard_links"], MAX_TREE, "hard-link object"))
        if isinstance(record["root_xattrs"], bytes):
            attributes(self.get(record["root_xattrs"], MAX_TREE, "attribute object"))
        if record["wrote"] is not None:
            wrote(self.get(record["wrote"], MAX_TREE, "wrote object"))
        kinds = [meta["kind"] for meta in found.values()]
        counts = {"files": kinds.count("file"), "dirs": kinds.count("dir"), "links": kinds.count("link"),
                  "bytes": sum(meta.get("size", 0) for meta in found.values()), "left_out": len(out)}
        check(counts == record["counts"], f"the record counts {record['counts']}, the tree has {counts}")
        check(record["complete"] == (not any(reason in (3, 4) for _, reason, _ in out)), "complete contradicts left out")
        return record, found, out

    def check_lineage(self, name, lineage_id, ids):
        value = lineage(self.get(lineage_id, MAX_SMALL, "lineage"))
        check(value["name"] == name, "the lineage object has another name")
        entries, tags_seen, keys_seen, checkpoints = {}, {}, {}, []
        for key, raw in self.map_rows(value["checkpoints"]):
            check(len(key) == 8, "a checkpoint's key is not a number")
            at = struct.unpack(">Q", key)[0]
            check(1 <= at < value["next"], "a checkpoint's number is not below the next number")
            entry = checkpoint_entry(raw)
            with within(f"checkpoint {entry['id'].hex()[:12]}"):
                check(entry["id"] not in ids, "a checkpoint is there twice")
                ids[entry["id"]] = name
                record, found, out = self.check_record(entry["id"])
                check(record["time"] == entry["time"], "the entry repeats another time than the record's")
                if entry["purged"] is not None:
                    left_out(self.get(entry["purged"], MAX_TREE, "left-out object"))
            for tag in entry["tags"]:
                check(tag not in tags_seen, "a tag stands at two checkpoints")
                tags_seen[tag] = at
            entries[at] = (entry, record)
            checkpoints.append(summary_of(at, entry, record, found, out))
        tags = {tag: struct.unpack(">Q", at)[0] for tag, at in self.map_rows(value["tags"])}
        check(tags == tags_seen, "the tags map and the checkpoints' tags disagree")
        for key, at in self.map_rows(value["keys"]):
            at = struct.unpack(">Q", at)[0]
            check(at in entries, "a key names a checkpoint that is not there")
            record = entries[at][1]
            check(key == bytes([record["role"]]) + (record["key"] or b""), "a key names a checkpoint with another key")
            keys_seen[key] = at
        for at, (_, record) in entries.items():
            if record["key"] is not None:
                check(bytes([record["role"]]) + record["key"] in keys_seen, "a checkpoint's key is not in the keys map")
        return value, checkpoints

    def check_catalog(self):
        root = catalog_root(self.get(bytes.fromhex(self.manifest["catalog"]), MAX_SMALL, "catalog"))
        ids, sources, lineages = {}, [], []
        for name, raw in self.map_rows(root["lineages"]):
            check(len(raw) == 32, "a lineage's value is not an id")
            with within(f"lineage {name.decode('utf-8', 'backslashreplace')}"):
                value, checkpoints = self.check_lineage(name, raw, ids)
            sources.append(value["source"] + b"\0" + name)
            lineages.append({"name": name.hex(), "source": value["source"].hex(), "state": value["state"],
                             "next": value["next"], "checkpoints": checkpoints})
        check({key: row for key, row in self.map_rows(root["ids"])} == ids, "the ids map and the lineages disagree")
        rows = self.map_rows(root["sources"])
        check([key for key, _ in rows] == sorted(sources), "the sources map and the lineages disagree")
        check(all(row == b"" for _, row in rows), "a row of the sources map has a value")
        return lineages


def summary_of(at, entry, record, found, out):
    return {
        "number": at, "id": entry["id"].hex(), "pinned": entry["pinned"], "note": entry["note"].hex(),
        "tags": [tag.decode() for tag in entry["tags"]], "message": record["message"].hex(),
        "parent": record["parent"].hex() if record["parent"] else None,
        "key": record["key"].hex() if record["key"] is not None else None,
        "role": ("none", "before", "after")[record["role"]],
        "actor": ("none", "agent", "person", "watch", "rollback")[record["actor"]],
        "complete": record["complete"], "root": {"mode": record["root_mode"], "mtime": record["root_mtime"]},
        "left_out": [[path.hex(), reason, rule.decode("utf-8", "replace")] for path, reason, rule in out],
        "entries": {path.hex(): meta for path, meta in found.items()},
    }


# --- a store ----------------------------------------------------------------------------------------------------------

FIXED = {"CURRENT": "file", "LOCK": "file", ".gitignore": "file", "reserve": "file", "generations": "dir",
         "incoming": "dir", "receipts": "dir", "turns": "dir", "jobs": "dir", "cache": "dir"}
IN_INCOMING = re.compile(r"gen-[0-9]{10}-[0-9a-f]{32}\.claim|(pack|current|cache|receipt|manifest)-[0-9a-f]{32}\.tmp")
IN_RECEIPTS = re.compile(r"[0-9]{10}-[a-z]+-[0-9a-f]{16}\.json|failed\.log")
IN_CACHE = re.compile(r"[0-9a-f]{64}\.stat")
BOOT_IN_CACHE = re.compile(r"boot|[0-9a-f]{64}\.stat")


def check_store(store, zstd):
    foreign = []
    check(stat.S_IMODE(os.stat(store).st_mode) == 0o700, "the store's directory is not 0700")
    for name in sorted(os.listdir(store)):
        kind = FIXED.get(name)
        if kind is None:
            foreign.append(name)
        else:
            check_mode(os.path.join(store, name), stat.S_IFDIR if kind == "dir" else stat.S_IFREG,
                       0o700 if kind == "dir" else 0o600)
    current = read(os.path.join(store, "CURRENT"), 48)
    check(len(current) == 48 and current[47:] == b"\n" and GENERATION.fullmatch(current[:47].decode("latin-1")),
          "CURRENT is not one generation id and a line feed")
    lock = read(os.path.join(store, "LOCK"), 1 << 16)
    check(lock == b"" or lock.startswith(b"held "), "LOCK says something else than held")
    check(read(os.path.join(store, ".gitignore"), 16) == b"*\n", ".gitignore is not one star")
    if os.path.lexists(os.path.join(store, "reserve")):
        found = os.lstat(os.path.join(store, "reserve"))
        check(found.st_size == MIB and found.st_blocks * 512 >= MIB, "reserve is not 1 MiB of real space")
    foreign += check_small_directories(store)
    return current[:47].decode(), foreign, check_generations(store, current[:47].decode(), foreign, zstd)


def check_small_directories(store):
    foreign = []
    for directory, grammar in (("incoming", IN_INCOMING), ("receipts", IN_RECEIPTS), ("cache", BOOT_IN_CACHE)):
        for name in sorted(os.listdir(os.path.join(store, directory))):
            check_mode(os.path.join(store, directory, name), stat.S_IFREG,
                       stat.S_IMODE(os.lstat(os.path.join(store, directory, name)).st_mode))
            if not grammar.fullmatch(name):
                foreign.append(f"{directory}/{name}")
    return foreign


def check_generations(store, live, foreign, zstd):
    packs, generations = {}, {}
    for name in sorted(os.listdir(os.path.join(store, "generations"))):
        path = os.path.join(store, "generations", name)
        if not GENERATION.fullmatch(name):
            foreign.append(f"generations/{name}")
        elif os.listdir(path) or name == live:
            with within(name):
                generations[name] = Generation(path, name, zstd, packs)
    check(live in generations, "CURRENT names a generation that is not there")
    for name, generation in generations.items():
        with within(name):
            check_descent(name, generation.manifest, generations)
    kept = {row["id"] for row in generations[live].manifest["kept"]}
    check(live not in kept, "the live generation is listed as kept")
    return generations


def check_descent(name, value, generations):
    check(value["store"] == next(iter(generations.values())).manifest["store"], "another store's generation")
    operation = value["operation"]
    fresh = operation["kind"] in ("init", "activate", "purge") or operation["request"].get("undone_kind") == "activate"
    if fresh:
        check(value["epoch"]["nonce"] == value["nonce"], "an epoch does not begin with its own nonce")
    if value["parent"] is None:
        check(operation["kind"] in ("init", "activate", "repair"), "a generation without a parent")
        return
    check(value["sequence"] > int(value["parent"][4:14]), "the sequence does not grow")
    parent = generations.get(value["parent"])
    if parent and not fresh:
        check(value["epoch"] == parent.manifest["epoch"], "the epoch is not inherited")


def check_caches(store, generation):
    names = []
    for name in sorted(os.listdir(os.path.join(store, "cache"))):
        if not IN_CACHE.fullmatch(name):
            continue
        with within(f"cache/{name}"):
            value = stat_cache(read(os.path.join(store, "cache", name)))
            check(value["lineage"].hex() + ".stat" == name, "the name is not the lineage's")
            check(value["store"].hex() == generation.manifest["store"], "another store's cache")
            check_cached_trees(value["root"], generation)
            names.append(name)
    return names


def check_cached_trees(block, generation):
    if block["tree"] in generation.objects:
        stored = tree(generation.objects[block["tree"]])
        check([entry for entry, _ in block["entries"]] == stored, "a block is not the tree that it names")
    for entry, seen in block["entries"]:
        if entry["kind"] == "dir":
            check_cached_trees(seen, generation)


def store_summary(store):
    zstd = find_zstd()
    live, foreign, generations = check_store(store, zstd)
    checked = {}
    for name, generation in generations.items():
        with within(name):
            checked[name] = generation.check_catalog()
    caches = check_caches(store, generations[live])
    return {
        "current": live, "foreign": foreign, "caches": caches,
        "incoming": sorted(os.listdir(os.path.join(store, "incoming"))),
        "generations": [{"id": name, "kind": generation.manifest["operation"]["kind"],
                         "parent": generation.manifest["parent"], "objects": len(generation.objects),
                         "packs": len(generation.manifest["packs"]),
                         "kept": [row["id"] for row in generation.manifest["kept"]]}
                        for name, generation in generations.items()],
        "lineages": checked[live],
    }


# --- the worked examples of section 13 --------------------------------------------------------------------------------

def generation_line(data):
    check(len(data) == 48 and data[47:] == b"\n" and GENERATION.fullmatch(data[:47].decode("latin-1")), "not a selector")
    return {"sequence": int(data[4:14]), "digest": data[15:47].decode()}


def pack_example(data):
    return {object_id.hex(): body for object_id, body in pack(data, find_zstd()).items()}


DECODERS = {
    "selector": generation_line, "manifest": manifest, "pack": pack_example, "chunk-list": chunk_list, "tree": tree,
    "attributes": attributes, "holes": holes, "hard-links": hard_links, "checkpoint": checkpoint, "rules": rules,
    "left-out": left_out, "wrote": wrote, "catalog-root": catalog_root, "map-leaf": map_node, "map-node": map_node,
    "lineage": lineage, "checkpoint-entry": checkpoint_entry, "stat-cache": stat_cache,
}


def printable(value):
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, dict):
        return {key: printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(item) for item in value]
    return value


def examples(page):
    text = read(page).decode("utf-8")
    values = {}
    for form, name, body in re.findall(r"^```(hex|json) ([a-z0-9-]+)\n(.*?)\n```$", text, re.M | re.S):
        with within(f"example {name}"):
            decoder = DECODERS.get(name) or DECODERS.get(re.sub(r"-[0-9]+$", "", name))
            check(decoder is not None, "nothing decodes this")
            data = body.encode("utf-8")
            if form == "hex":
                data = bytes.fromhex("".join(line.split("#")[0] for line in body.splitlines()))
            values[name] = {"blake3": blake3(data).hex(), "value": printable(decoder(data))}
    check(values, "the page has no examples")
    return values


def main(arguments):
    sys.setrecursionlimit(20000)
    try:
        if len(arguments) == 2 and arguments[0] == "--examples":
            print(json.dumps(examples(arguments[1])))
        elif len(arguments) > 1 and arguments[0] == "--hash":
            for path in arguments[1:]:
                print(blake3(read(path)).hex())
        elif len(arguments) == 1:
            print(json.dumps(store_summary(arguments[0])))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except NoZstd as error:
        print(f"reader.py: {error}", file=sys.stderr)
        return 77
    except (Wrong, OSError) as error:
        print(f"reader.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
