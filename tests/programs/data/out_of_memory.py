"""A load that survives being out of memory: each part is tried again until it succeeds. Prints results alone."""
import hashlib
import sys


def small_objects():
    table = {}
    for i in range(60000):
        table[i % 7001] = [i, str(i) * (i % 13)]
    return len(table), sum(len(value[1]) for value in table.values())


def buffers():
    buffer = bytearray()
    for i in range(120):
        buffer += bytes([i]) * 60000
        if len(buffer) > 3000000:
            del buffer[:2000000]
    return hashlib.sha256(buffer).hexdigest()


def one_big_block():
    return sum(bytearray(30 << 20)) + len(bytes(9 << 20))


def strings():
    return len(",".join(str(i) * 3 for i in range(40000)))


def until_it_succeeds(part):
    for _ in range(3000):
        try:
            return part()
        except MemoryError:
            pass
    sys.exit("MemoryError again and again")


if __name__ == "__main__":
    for part in (small_objects, buffers, one_big_block, strings, small_objects):
        print(part.__name__, until_it_succeeds(part))
