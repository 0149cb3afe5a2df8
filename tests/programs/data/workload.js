// A load with printed results: maps, JSON, typed arrays, zlib, worker threads. Argument: a factor.
const crypto = require("crypto");
const zlib = require("zlib");
const { Worker } = require("worker_threads");
const scale = Number(process.argv[2]);
const digest = (data) => crypto.createHash("sha256").update(data).digest("hex").slice(0, 16);
const map = new Map();
let seed = 1;
for (let i = 0; i < 300000 * scale; i++) {
    seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
    const key = "k" + ((seed >> 8) % 20000);
    if (!map.delete(key)) {
        map.set(key, "x".repeat(seed % 100));
    }
}
console.log(map.size, digest([...map.entries()].sort().join()));
let tree = Array.from({ length: 5000 }, (_, i) => ({ i, s: String(i).repeat(4), f: [i / 3, null] }));
for (let i = 0; i < 10 * scale; i++) {
    tree = JSON.parse(JSON.stringify(tree));
}
console.log(digest(JSON.stringify(tree)));
const packed = zlib.gzipSync(Buffer.alloc(3000000, "pattern and more, "), { level: 6 });
console.log(digest(zlib.gunzipSync(packed)));
const code = `const a = []; for (let i = 0; i < 200000; i++) a.push({ i });
    require("worker_threads").parentPort.postMessage(a.length);`;
let left = 4;
for (let i = 0; i < 4; i++) {
    new Worker(code, { eval: true }).on("message", (n) => {
        if (--left === 0) console.log("workers", n);
    });
}
