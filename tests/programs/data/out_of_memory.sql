create table t (i integer primary key, h text, b blob);
insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
  select i, hex(i * 7919), zeroblob(i % 97) from n;
create index on_h on t (h);
select count(*), min(h), max(h), sum(length(b)) from t;
select substr(h, 1, 2) as k, count(*) from t group by k order by k limit 20;
select length(hex(zeroblob(3000000))), length(group_concat(h)) from t where i < 4000;
