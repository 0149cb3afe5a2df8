"""A load with printed results: json, dict churn, re, threads, processes. Argument: a factor for its length."""
import hashlib
import json
import multiprocessing
import random
import re
import sys
import threading

SCALE = int(sys.argv[1])


def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def json_round_trip():
    tree = {"n%d" % i: [i, str(i) * 5, {"x": i / 7, "y": [None, True] * (i % 9)}] for i in range(4000)}
    for _ in range(5 * SCALE):
        tree = json.loads(json.dumps(tree, sort_keys=True))
    return digest(sorted(tree.items()))


def dict_churn():
    source = random.Random(1)
    table = {}
    for i in range(200000 * SCALE):
        key = source.randrange(20000)
        if key in table:
            del table[key]
        else:
            table[key] = "v" * source.randrange(200)
    return digest(sorted(table.items()))


def regular_expressions():
    text = " ".join("word%d=%d;" % (i, i * i) for i in range(20000))
    found = re.findall(r"word(\d+)=(\d+);", text)
    replaced = re.sub(r"(\d)\1", lambda match: "<" + match.group(0) + ">", text)
    return len(found), digest(replaced)


def in_threads():
    results = [None] * 8

    def work(index):
        lists = []
        for i in range(4000 * SCALE):
            lists.append([index] * (i % 50))
            if len(lists) > 500:
                lists = lists[250:]
        results[index] = sum(map(len, lists))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def square_of(number):
    return len(str(number ** (number % 300 + 1)))


def in_processes():
    with multiprocessing.get_context("fork").Pool(4) as pool:
        return sum(pool.map(square_of, range(3000 * SCALE), chunksize=50))


def big_buffers():
    buffer = bytearray()
    for i in range(300 * SCALE):
        buffer += bytes([i % 256]) * 50000
        if len(buffer) > 8000000:
            del buffer[:4000000]
    return len(buffer), hashlib.sha256(buffer).hexdigest()[:16]


if __name__ == "__main__":
    for part in (json_round_trip, dict_churn, regular_expressions, in_threads, in_processes, big_buffers):
        print(part.__name__, part())
