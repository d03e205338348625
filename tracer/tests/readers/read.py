"""Reads an export by means that vramtrace has no part in, and prints what it holds as JSON.

Usage: read.py FORMAT FILE. Keys, as far as the format holds them: live and allocated bytes, live bytes by phase and by rank,
all names. A file that its viewers would stumble over is an error.
"""

import collections
import gzip
import json
import pickle
import pickletools
import re
import subprocess
import sys


def folded(path):
    # Only newlines end lines: names may hold other separators.
    lines = open(path, encoding="utf-8", newline="\n").read().split("\n")[:-1]
    stacks = [line.rsplit(" ", 1) for line in lines]
    names = {frame for stack, _ in stacks for frame in stack.split(";")}
    return {"live": sum(int(size) for _, size in stacks), "names": names}


def speedscope(path):
    """https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources"""
    file = json.load(open(path, encoding="utf-8"))
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert 0 <= file["activeProfileIndex"] < len(file["profiles"])
    frames = file["shared"]["frames"]
    for frame in frames:
        assert isinstance(frame["name"], str) and set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame.get("file", ""), str) and isinstance(frame.get("line", 0), int)
    ranks = collections.Counter()
    for profile in file["profiles"]:
        assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "bytes", 0)
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
        ranks[profile["name"].split(" · ")[0]] += profile["endValue"]
    return {"live": ranks.total(), "ranks": ranks, "names": {frame["name"] for frame in frames}}


def pprof(path):
    """By Go's own pprof; names off the wire format, for Go prints them shortened."""
    raw = subprocess.run(["go", "tool", "pprof", "-raw", path], check=True, capture_output=True, text=True).stdout
    samples = raw.split("\nSamples:\n")[1].split("\nLocations\n")[0].split("\n")
    assert samples[0] == "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]"
    live, allocated, now = collections.defaultdict(collections.Counter), 0, 0
    for line in samples[1:]:
        values = re.match(r"^ *(\d+) +(\d+) +(\d+) +(\d+): [\d ]+$", line)
        if values:
            allocated, now = allocated + int(values[2]), int(values[4])
        for key, label in re.findall(r"(\w+):\[([^\]]*)\]", line) if not values else []:
            live[key][label] += now
    strings = [value.decode() for field, value in fields(gzip.open(path).read()) if field == 6]
    assert strings[0] == ""
    total = live["pid"].total()
    return {"live": total, "allocated": allocated, "phases": live["phase"], "names": strings}


def fields(message):
    """Fields of a protobuf message: number and value."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            at += size
            yield key >> 3, message[at - size : at]


def firefox(path):
    """https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md"""
    profile = json.load(open(path, encoding="utf-8"))
    assert isinstance(profile["meta"]["preprocessedProfileVersion"], int)
    shared = profile.get("shared", {})
    live, allocated, names = 0, 0, set()
    for thread in profile["threads"]:
        strings = thread.get("stringArray") or shared["stringArray"]
        names.update(strings, [thread["processName"]])
        table, frames, funcs = thread["stackTable"], thread["frameTable"], thread["funcTable"]
        for n, (prefix, frame) in enumerate(zip(table["prefix"], table["frame"])):
            assert (prefix is None or prefix < n) and strings[funcs["name"][frames["func"][frame]]] is not None
        assert all(0 <= name < len(strings) for name in thread["markers"]["name"])
        native = thread.get("nativeAllocations")
        if native:
            held = {}
            assert native["time"] == sorted(native["time"])
            for weight, address, stack in zip(native["weight"], native["memoryAddress"], native["stack"]):
                assert stack is None or 0 <= stack < table["length"]
                if weight >= 0:
                    assert address not in held
                    held[address] = weight
                    allocated += weight
                else:
                    assert held.pop(address) == -weight
            live += sum(held.values())
    gone_up = sum(int(step) for counter in profile.get("counters", []) for step in counter["samples"]["count"] if step > 0)
    assert gone_up == allocated, "the memory tracks count what the stacks do"
    return {"live": live, "allocated": allocated, "names": names}


def perfetto(path):
    file = json.load(open(path, encoding="utf-8"))
    ranks, ends, names, counters = {}, {}, set(), collections.defaultdict(list)
    for event in file["traceEvents"]:
        assert isinstance(event["pid"], int)
        names.add(event["name"])
        if event["ph"] == "M":
            if event["name"] == "process_name":
                assert event["pid"] not in ranks
                ranks[event["pid"]] = event["args"]["name"].split(" · ")[0]
                names.add(event["args"]["name"])
            continue
        assert event["ts"] >= 0 and event["ph"] in "XiC"
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["tid"], int)
            names.update(event["args"].get("stack", "").split("\n"))
        elif event["ph"] == "i" and event["name"] in ("exit", "peer ends"):
            ends[event["pid"]] = min(event["ts"], ends.get(event["pid"], float("inf")))
        elif event["ph"] == "C":
            counters[event["pid"], event["name"]].append((event["ts"], event["args"]["bytes"]))
    allocated, used, by_rank, phases = 0, 0, collections.Counter(), collections.Counter()
    for (pid, name), values in counters.items():
        _, kind, phase = re.match(r"^(.+?) (live|NVML|PyTorch blocks)(?: (.+))?$", name).groups()
        assert [t for t, _ in values] == sorted(t for t, _ in values)
        before = [value for t, value in values if t < ends.get(pid, float("inf"))]
        if kind == "live" and phase:
            phases[phase] += before[-1] if before else 0
        elif kind == "PyTorch blocks":
            used += before[-1]
        elif kind == "live":
            by_rank[ranks[pid]] += before[-1] if before else 0
            steps = zip([0] + [value for _, value in values], [value for _, value in values])
            allocated += sum(max(new - old, 0) for old, new in steps)
    return {"live": by_rank.total(), "allocated": allocated, "phases": phases, "ranks": by_rank, "names": names, "blocks": used}


# What the reader on pytorch.org/memory_viz knows (torch/utils/viz/MemoryViz.js, `unpickle`).
MEMORY_VIZ = """APPEND APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST LONG1 LONG_BINGET LONG_BINPUT BINPUT MARK
PROTO SETITEM SETITEMS STOP BINUNICODE NEWTRUE NEWFALSE NONE BINFLOAT TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE""".split()


def torch_snapshot(path):
    """What torch/cuda/_memory_viz.py and MemoryViz.js count on."""
    data = open(path, "rb").read()
    assert all(opcode.name in MEMORY_VIZ for opcode, _, _ in pickletools.genops(data))
    snapshot = pickle.loads(data)
    names, live, allocated, phases = set(), 0, 0, collections.Counter()
    traces, used = snapshot["device_traces"], 0
    segments, blocks = collections.defaultdict(list), collections.defaultdict(dict)

    def frames(list_of_frames):
        for frame in list_of_frames:
            assert isinstance(frame["line"], int) and isinstance(frame["filename"], str)
            names.add(frame["name"])

    for segment in snapshot["segments"]:
        assert 0 <= segment["device"] < len(traces) and segment["segment_type"] in ("small", "large")
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address and block["requested_size"] <= block["size"]
            assert block["state"] in ("active_allocated", "active_pending_free", "inactive")
            if block["state"] == "active_allocated":
                blocks[segment["device"]][address] = block["size"]
                used += block["size"]
            address += block["size"]
            frames(block["frames"])
        # _memory_viz.segsum: free and allocated bytes are the segment's.
        assert address == segment["address"] + segment["total_size"]
        segments[segment["device"]].append((segment["address"], address))
        live += segment["total_size"]
    for device, trace in enumerate(traces):
        here = sorted(segments[device])
        assert all(end <= start for (_, end), (start, _) in zip(here, here[1:])), "segments overlap"
        if not trace:
            assert not here
            continue
        # MemoryViz.js stops at categories without this one.
        assert any(event.get("category") == "unknown" for event in trace)
        now, pieces, category = {}, {}, {}
        for before, event in zip([None] + trace, trace):
            assert isinstance(event["time_us"], int) and event["stream"] == 0
            frames(event["frames"])
            action, address, size = event["action"], event["addr"], event["size"]
            if action in ("segment_alloc", "segment_map"):
                assert address not in pieces
                pieces[address], category[address] = size, event["category"]
                allocated += size
            elif action in ("segment_free", "segment_unmap"):
                assert pieces.pop(address) == size
                assert not any(address < at + held and at < address + size for at, held in now.items()), "block left"
            elif action == "alloc":
                # The viewer looks for the segment of each block.
                assert covered(address, size, pieces) and address not in now
                now[address] = size
            elif action == "free_completed":
                assert (before["action"], before["addr"]) == ("free_requested", address)
                assert now.pop(address) == size
            else:
                assert action in ("free_requested", "oom", "snapshot")
        assert now == blocks[device], "the trace leads to the state"
        assert sum(pieces.values()) == sum(end - start for start, end in here)
        assert all(any(start <= at < end for start, end in here) for at in pieces)
        for address, size in pieces.items():
            phases["unattributed" if category[address] == "unknown" else category[address]] += size
    return {"live": live, "allocated": allocated, "phases": phases, "names": names, "used": used}


def covered(address, size, pieces):
    """True when the pieces hold all of a block."""
    at = address
    while at < address + size:
        piece = next((start + held for start, held in pieces.items() if start <= at < start + held), None)
        if piece is None:
            return False
        at = piece
    return True


def parquet(path):
    import duckdb

    def counts(column):
        query = f"""SELECT {column}, sum(CASE event WHEN 'alloc' THEN bytes WHEN 'free' THEN -bytes END)
                    FROM read_parquet(?) WHERE event IN ('alloc', 'free') GROUP BY ALL"""
        return {key: int(value) for key, value in duckdb.execute(query, [path]).fetchall()}

    one = lambda query: duckdb.execute(query, [path]).fetchone()[0]
    assert one("SELECT count(*) FROM read_parquet(?) WHERE event = 'alloc' AND live_bytes_after < bytes") == 0
    facts = dict(duckdb.execute("SELECT decode(key), decode(value) FROM parquet_kv_metadata(?)", [path]).fetchall())
    assert facts["vramtrace.schema"] == "vramtrace.events/1"
    names = duckdb.execute("SELECT DISTINCT unnest(stack) FROM read_parquet(?)", [path]).fetchall()
    ranks = counts("rank")
    return {
        "live": sum(ranks.values()),
        "allocated": int(one("SELECT coalesce(sum(bytes), 0) FROM read_parquet(?) WHERE event = 'alloc'")),
        "phases": counts("phase"),
        "ranks": ranks,
        "blocks": int(one("""SELECT coalesce(sum(CASE event WHEN 'block' THEN bytes ELSE -bytes END), 0)
                             FROM read_parquet(?) WHERE event IN ('block', 'block_free')""")),
        "names": {name for (name,) in names} | set(ranks),
    }


if __name__ == "__main__":
    _, name, path = sys.argv
    held = globals()[name.replace("-", "_")](path)
    held["names"] = sorted(held["names"])
    print(json.dumps(held))
