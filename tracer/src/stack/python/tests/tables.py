"""Line tables of a module's code objects, with what this interpreter says they mean.

One line of JSON for each: first line, table in hexadecimal, and pairs of a position (bytes) and its line or null.
"""

import dis
import json
import sys
import types


def lines(code):
    if hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            for position in range(start, end, 2):
                yield position, line
        return
    starts = dict(dis.findlinestarts(code))
    line = code.co_firstlineno
    for position in range(0, len(code.co_code), 2):
        line = starts.get(position, line)
        yield position, line


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


print(sys.version_info[0], sys.version_info[1])
for name in sys.argv[1:]:
    module = __import__(name)
    with open(module.__file__, encoding="utf-8") as source:
        whole = compile(source.read(), module.__file__, "exec")
    for code in codes(whole):
        table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        print(json.dumps([code.co_firstlineno, table.hex(), list(lines(code))]))
