#!/usr/bin/env python3
"""trace_reader.py FILE.trace... - events as lines of JSON, by docs/formats/trace.md alone.

An independent reader for comparison with the one in C: slow, plain, only the standard library (and
the `zstd` command for compressed blocks). Prints the events of each file; damage goes to stderr.
"""
import json
import math
import os
import struct
import subprocess
import sys

MASK = (1 << 64) - 1
BLOCK_MAGIC = b"\x89TOCBLK\n"
MARK, FOOTER = 0xFFFFFFFE, 0xFFFFFFFF

EVENT_KINDS = {1: "enter", 2: "exit", 3: "raise", 4: "state", 5: "meta"}
VALUE_KINDS = ["none", "bool", "int", "float", "string", "tensor", "sequence", "object", "module",
               "big"]
VARIABLE_KINDS = {1: "parameter", 2: "buffer", 3: "optimizer_state", 4: "rng", 5: "ledger",
                  6: "attribute", 7: "boundary"}
ROLES = ["", "forward", "loss", "backward", "zero_grad", "optimizer.step", "clip_grad",
         "lr_scheduler.step", "collective", "data.next", "grad_scaler", "mode", "init",
         "checkpoint", "step.end", "user"]
DTYPES = ["none", "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
          "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128",
          "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
VALUE_FLAGS = ["requires_grad", "has_grad_fn", "is_parameter", "training", "in_sequence",
               "on_device", "has_item"]
STATE_FLAGS = ["present", "digested", "requires_grad", "is_leaf", "in_optimizer",
               "in_this_optimizer", "in_model", "tensor_parallel", "module_training", "tied",
               "hashed", "piece"]

# ---- XXH3-64, seed 0, inputs of more than 16 bytes (all there are) ------------------------------

P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
       0x27D4EB2F165667C5)
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff72"
    "21b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9de"
    "acd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa"
    "1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbca"
    "bb4b407e")


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def fold(a, b):
    product = a * b
    return (product ^ (product >> 64)) & MASK


def avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & MASK
    return h ^ (h >> 32)


def mix16(data, at, secret_at):
    return fold(u64(data, at) ^ u64(SECRET, secret_at), u64(data, at + 8) ^ u64(SECRET,
                                                                               secret_at + 8))


def accumulate(lanes, data, at, secret_at):
    for i in range(8):
        value = u64(data, at + 8 * i)
        key = value ^ u64(SECRET, secret_at + 8 * i)
        lanes[i ^ 1] = lanes[i ^ 1] + value & MASK
        lanes[i] = lanes[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK


def xxh3(data):
    n = len(data)
    assert n > 16
    if n <= 128:
        h = n * P64[0] & MASK
        for i in reversed(range((n - 1) // 32 + 1)):
            h += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(h & MASK)
    if n <= 240:
        h = n * P64[0] & MASK
        for i in range(8):
            h += mix16(data, 16 * i, 16 * i)
        h = avalanche(h & MASK)
        for i in range(8, n // 16):
            h += mix16(data, 16 * i, 16 * (i - 8) + 3)
        h += mix16(data, n - 16, 136 - 17)
        return avalanche(h & MASK)
    lanes = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    stripes_per_block = (len(SECRET) - 64) // 8
    stripes = (n - 1) // 64
    for stripe in range(stripes):
        accumulate(lanes, data, 64 * stripe, 8 * (stripe % stripes_per_block))
        if stripe % stripes_per_block == stripes_per_block - 1:
            for i in range(8):
                lane = lanes[i] ^ (lanes[i] >> 47) ^ u64(SECRET, len(SECRET) - 64 + 8 * i)
                lanes[i] = lane * P32[0] & MASK
    accumulate(lanes, data, n - 64, len(SECRET) - 64 - 7)
    h = n * P64[0]
    for i in range(4):
        h += fold(lanes[2 * i] ^ u64(SECRET, 11 + 16 * i), lanes[2 * i + 1] ^ u64(SECRET,
                                                                                 19 + 16 * i))
    return avalanche(h & MASK)


# ---- fields -------------------------------------------------------------------------------------


class Fields:
    """Bytes read from the front; running out of them is an IndexError or struct.error."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def varint(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value & MASK

    def zigzag(self):
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def rest(self):
        return self.data[self.at:]


def records(raw):
    at = 0
    while at < len(raw):
        size = struct.unpack_from("<H", raw, at)[0]
        yield at, raw[at + 2:at + 2 + size]
        at += 2 + size


def real(value):
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def flag_names(flags, names):
    return [name for bit, name in enumerate(names) if flags >> bit & 1]


# ---- one process --------------------------------------------------------------------------------


class Trace:
    def __init__(self, path):
        self.path = path
        self.names = {}  # (kind, id) -> tuple
        self.pid = 0
        self.damage = 0
        self.waiting = []  # (time, stream, order, event)
        self.known = {}  # stream -> position up to which it was read
        self.order = 0

    def define(self, raw):
        for _, record in records(raw):
            fields = Fields(record)
            kind, key = fields.take("B"), fields.varint()
            if kind == 1:
                content = fields.rest().decode("utf-8", "replace").split("\0")[0]
            elif kind == 4:
                content = [fields.varint() for _ in range(fields.varint())]
            else:
                content = [fields.varint() for _ in range(2 if kind == 2 else 3)]
            self.names[kind, key] = content

    def text(self, key):
        return self.names.get((1, key), "?") if key else ""

    def tensor(self, dtype, ndim, shape):
        sizes = self.names.get((4, shape))
        return {"dtype": DTYPES[dtype] if dtype < len(DTYPES) else "unknown", "ndim": ndim,
                "shape": sizes if sizes is not None or ndim else []}

    def value(self, fields):
        head = fields.take("B")
        kind = head & 15
        result = {"name": self.text(fields.varint()), "kind": VALUE_KINDS[kind]}
        if head & 16:
            result["type"] = self.text(fields.varint())
        flags = fields.take("B") if head & 32 else 0
        count = fields.varint() if head & 64 else 0
        if kind == 1:
            result["value"] = fields.zigzag() != 0
        elif kind == 2:
            result["value"] = fields.zigzag()
        elif kind == 3:
            result["value"] = real(fields.take("d"))
        elif kind in (4, 8):
            result["value"] = self.text(fields.varint())
        elif kind == 5:
            result.update(self.tensor(fields.take("B"), fields.take("B"), fields.varint()))
            if count:
                result["memory"] = count
        elif kind == 6:
            result["count"] = count
        if flags:
            result["flags"] = flag_names(flags, VALUE_FLAGS)
        return result

    def state(self, fields, tag):
        name, kind, type_ = self.names.get((3, fields.varint()), (0, 0, 0))
        result = {"variable": self.text(name), "variable_kind": VARIABLE_KINDS.get(kind, ""),
                  "type": self.text(type_), "attribute": self.text(fields.varint()),
                  "moment": "enter" if fields.take("B") == 1 else "exit"}
        flags = fields.varint()
        result["flags"] = flag_names(flags, STATE_FLAGS)
        if flags & 1:
            result.update(self.tensor(fields.take("B"), fields.take("B"), fields.varint()))
        if tag & 32:
            result["lr"] = real(fields.take("d"))
        if flags & 2:
            for key in ("sum", "exclusive", "polynomial"):
                result[key] = "%016x" % fields.take("Q")
            for key in ("nan_count", "inf_count", "zero_count"):
                result[key] = fields.varint()
            for key in ("absmax", "sum_squares"):
                result[key] = real(fields.take("d"))
        if tag & 16:
            result["values"] = self.values(fields)
        return result

    def values(self, fields):
        return [self.value(fields) for _ in range(fields.varint())]

    def call(self, fields, tag):
        name, role = self.names.get((2, fields.varint()), (0, 0))
        result = {"function": self.text(name), "role": ROLES[role] if role < len(ROLES) else ""}
        if tag & 8:
            file, line, function = self.names.get((5, fields.varint()), (0, 0, 0))
            result["site"] = {"file": self.text(file), "line": line,
                              "function": self.text(function)}
        result["values"] = self.values(fields) if tag & 16 else []
        return result

    def events(self, stream, start, time, calls, raw):
        """Queue the events of a piece of a stream that were not read yet."""
        known = self.known.get(stream, 0)
        for at, record in records(raw):
            fields = Fields(record)
            tag = fields.take("B")
            kind = tag & 7
            time = time + fields.varint() & MASK
            calls += kind == 1
            if start + at < known or kind not in EVENT_KINDS:
                continue
            call = calls if kind == 1 else calls - fields.zigzag() & MASK
            event = {"pid": self.pid, "thread": stream, "time_ns": time, "depth": fields.varint(),
                     "call": call, "kind": EVENT_KINDS[kind]}
            if kind == 4:
                event.update(self.state(fields, tag))
            elif kind == 5:
                event["key"] = self.text(fields.varint())
                event["value"] = self.value(fields)
            else:
                event.update(self.call(fields, tag))
            self.order += 1
            self.waiting.append((time, stream, self.order, event))
        self.known[stream] = max(known, start + len(raw))

    def release(self, before):
        self.waiting.sort(key=lambda entry: entry[:3])
        while self.waiting and (before is None or self.waiting[0][0] < before):
            yield self.waiting.pop(0)[3]

    def blocks(self, data):
        """(header fields, raw bytes or None for a damaged block) of each block."""
        at = 160
        while len(data) - at >= 64:
            sound = data[at:at + 8] == BLOCK_MAGIC and u64(data, at + 56) >> 32 == (
                xxh3(data[at:at + 60]) & 0xFFFFFFFF)
            if not sound:
                found = data.find(BLOCK_MAGIC, at + 1)
                if found < 0:
                    return
                self.damage += 1
                at = found
                continue
            header = struct.unpack_from("<IHHQIIQQQI", data, at + 8)
            raw_bytes, stored = header[4], header[5]
            end = at + 64 + stored
            if len(data) < end + 8:
                return
            raw = None
            if u64(data, end) == xxh3(data[at:end]):
                raw = data[at + 64:end]
                if header[1] == 1:
                    raw = subprocess.run(["zstd", "-dcq"], input=raw, capture_output=True,
                                         check=True).stdout
                assert len(raw) == raw_bytes
            else:
                self.damage += 1
            yield header, raw
            at = end + 8

    def ring(self):
        """Queue what the ring file has beyond the trace file."""
        path = self.path[:-len("trace")] + "ring"
        if not self.path.endswith(".trace") or not os.path.exists(path):
            return
        with open(path, "rb") as file:
            data = file.read()
        if data[:8] != b"TOCSRING" or u64(data, 24) != self.pid:
            self.damage += 1
            return
        page, first_bytes, ring_bytes = struct.unpack_from("<III", data, 136)
        at, size = page, first_bytes
        while at < len(data):
            in_use, stream = struct.unpack_from("<II", data, at)
            chosen = at + 24 + 24 * (struct.unpack_from("<I", data, at + 16)[0] & 1)
            start, time, calls = struct.unpack_from("<QQQ", data, chosen)
            head = u64(data, at + 128)
            if in_use == 1 and head > start:
                ring = data[at + page:at + page + size]
                begin = start % size
                raw = (ring + ring)[begin:begin + head - start]
                if stream == 0:
                    self.define(raw)
                else:
                    self.events(stream, start, time, calls, raw)
            at += page + size
            size = ring_bytes

    def read(self):
        """All events, in the order of the page's section 4."""
        with open(self.path, "rb") as file:
            data = file.read()
        if data[:8] != b"TOCTRACE"[:len(data)]:
            raise ValueError("%s: not a Tocsin trace" % self.path)
        if len(data) >= 160:
            if struct.unpack_from("<I", data, 8)[0] != 1 or u64(data, 16):
                raise ValueError("%s: another version" % self.path)
            if u64(data, 152) == xxh3(data[:152]):
                self.pid = u64(data, 24)
            else:
                self.damage += 1
        watermark, current, complete = 0, None, False
        for header, raw in self.blocks(data):
            stream, _, flags, start, _, _, time, calls, pass_ns, _ = header
            if current is not None and pass_ns != current:
                watermark = max(watermark, current)
                yield from self.release(watermark)
            current = pass_ns
            if stream == FOOTER and raw is not None:
                complete = True
                break
            if stream == 0 and raw is not None:
                self.define(raw)
            elif stream < MARK and raw is not None:
                self.events(stream, start, time, calls, raw)
            if flags & 1:
                watermark, current = max(watermark, pass_ns), None
                yield from self.release(watermark)
        if not complete:
            self.ring()
        yield from self.release(None)


def main(paths):
    damage = 0
    for path in paths:
        trace = Trace(path)
        for event in trace.read():
            print(json.dumps(event, ensure_ascii=False))
        damage += trace.damage
    if damage:
        print("%d damaged block(s)" % damage, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
