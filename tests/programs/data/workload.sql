-- A load with printed results: recursive inserts, indices, joins, grouping, updates, a vacuum.
PRAGMA journal_mode = WAL;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, kind INTEGER);
CREATE TABLE sale (id INTEGER PRIMARY KEY, item INTEGER, count INTEGER, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
    INSERT INTO item SELECT i, printf('item-%d', i * 7919 % 20011), i * 1.25, i % 37 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO sale SELECT i, i * 31 % 20000 + 1, i % 9, printf('%.*c', i % 90, 'x') FROM n;
CREATE INDEX item_name ON item (name);
CREATE INDEX sale_item ON sale (item, count);
SELECT kind, count(*), sum(count * price), group_concat(DISTINCT count) FROM sale JOIN item ON item.id = sale.item
    GROUP BY kind ORDER BY kind;
SELECT name, total FROM (SELECT item.name AS name, sum(sale.count) AS total FROM item JOIN sale ON sale.item = item.id
    GROUP BY item.id) ORDER BY total DESC, name LIMIT 20;
UPDATE sale SET note = note || note WHERE count = 3;
DELETE FROM sale WHERE item IN (SELECT id FROM item WHERE name LIKE '%9%');
SELECT count(*), sum(length(note)) FROM sale;
SELECT json_group_array(json_object('k', kind, 'n', n)) FROM (SELECT kind, count(*) AS n FROM item GROUP BY kind);
VACUUM;
PRAGMA integrity_check;
