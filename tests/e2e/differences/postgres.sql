-- Nasty tables: each as it is made, then what happens to it before the second run, and before the third.
-- `-- table NAME`, and behind it what its replication key is where that is not updated_at.

-- table exact
create table exact (id int primary key, a numeric(38,10), b numeric, c numeric(30,0), d float8, e real, updated_at timestamptz not null default clock_timestamp());
insert into exact values (1, 1234567890123456789012345678.0123456789, 0.1, 123456789012345678901234567890, 0.1, 0.1), (2, 0.1, 12345678901234567890.123456789, 1, 1e308, 1e-30), (3, -7, 1e-20, 9007199254740993, 5e-324, 16777216);
-- before the second run
insert into exact values (4, 9999999999999999999999999999.9999999999, 1e30, 2, -0.0, 3.4e38);
-- before the third run
update exact set a = a + 0.0000000001, updated_at = clock_timestamp() where id < 4;

-- table oddnumbers
create table oddnumbers (id int primary key, n numeric, f float8, updated_at timestamptz not null default clock_timestamp());
insert into oddnumbers values (1, 'NaN', 'NaN'), (2, 1, 'infinity'), (3, 2, '-infinity'), (4, 'infinity', 1);
-- before the second run
insert into oddnumbers values (5, 'NaN', 1);

-- table wideids
create table wideids (id numeric(30,0) primary key, name text, updated_at timestamptz not null default clock_timestamp());
insert into wideids select 9007199254740992 + i, 'row ' || i from generate_series(1, 4) i;
-- before the second run
update wideids set name = name || '!', updated_at = clock_timestamp();
-- before the third run
insert into wideids values (123456789012345678901234567890, 'a'), (123456789012345678901234567891, 'b');

-- table finekeys
create table finekeys (id numeric primary key, name text, updated_at timestamptz not null default clock_timestamp());
insert into finekeys values (0.1, 'a'), (0.10000000000000001, 'b'), (0.1000000000000000055, 'c');
-- before the second run
update finekeys set name = name || '!', updated_at = clock_timestamp();

-- table moments
create table moments (id int primary key, d date, t timestamp, z timestamptz, c time, cz timetz, i interval, updated_at timestamptz not null default clock_timestamp());
insert into moments values (1, '2024-02-29', '2024-02-29 12:34:56.123456', '2024-02-29 12:34:56.123456+05:30', '12:34:56.123456', '12:34:56+02', '1 day 02:03:04.5'), (2, '9999-12-31', '0001-01-01', '9999-12-31 23:59:59.999999+00', '23:59:59.999999', '00:00+14', '-1 hour');
-- before the second run
insert into moments values (3, null, null, null, '00:00', null, '100:00:00');

-- table endless
create table endless (id int primary key, d date, t timestamp, z timestamptz, updated_at timestamptz not null default clock_timestamp());
insert into endless values (1, 'infinity', 'infinity', 'infinity'), (2, '-infinity', '-infinity', '-infinity');
-- before the second run
insert into endless values (3, 'infinity', null, '-infinity');

-- table beforechrist
create table beforechrist (id int primary key, d date, t timestamp, updated_at timestamptz not null default clock_timestamp());
insert into beforechrist values (1, '2024-01-01', '2024-01-01'), (2, '0044-03-15 BC', null), (3, null, '0044-03-15 BC'), (4, '12024-01-01', null);
-- before the second run
insert into beforechrist values (5, '2024-01-01', '2024-01-01');

-- table lastclock
create table lastclock (id int primary key, c time, i interval, updated_at timestamptz not null default clock_timestamp());
insert into lastclock values (1, '24:00', '1 month'), (2, '00:00', '1 year 2 months 3 days'), (3, '01:00', '30 days');
-- before the second run
insert into lastclock values (4, '24:00', null);

-- table momentkeys
create table momentkeys (at timestamptz primary key, name text, updated_at timestamptz default clock_timestamp());
insert into momentkeys values ('infinity', 'a'), ('9999-12-31 23:59:59.999999+00', 'b'), ('2024-01-01', 'c');
-- before the second run
update momentkeys set name = name || '!', updated_at = clock_timestamp();

-- table documents
create table documents (id int primary key, b jsonb, j json, updated_at timestamptz not null default clock_timestamp());
insert into documents values (1, 'null', 'null'), (2, null, null), (3, '{"a": [null, {"ü": "🚀"}]}', '[]'),
        (4, '12345678901234567890.123456789', '{"n": 9007199254740993}'), (5, '"text"', '"5"'),
        (6, '[1e400, 0.1000]', '{}'), (7, 'true', '{"a": 1.10}');
-- before the second run
update documents set b = '{"new": null}', updated_at = clock_timestamp() where id = 3;
insert into documents values (8, 'null', '{"x": 123456789.123456789123456789}'), (9, '123456789012345678901', '1');

-- table arrays
create table arrays (id int primary key, i int[], t text[], n numeric[], m int[][], z timestamptz[], updated_at timestamptz not null default clock_timestamp());
insert into arrays values (1, '{1,NULL,3}', '{a,"b,c",NULL,"","NULL","\"q"}', '{1.10,12345678901234567890.5}',
        '{{1,2},{3,4}}', '{2024-01-01 00:00:00+00}'), (2, '{}', '{}', '{}', '{}', '{}');
-- before the second run
insert into arrays values (3, '{-1}', '{ö,🚀}', '{0.1}', '{{5}}', null), (4, null, '{" a "}', null, null, null);

-- table kinds
create type mood as enum ('sad', 'very happy', 'ü');
create table kinds (id int primary key, m mood, u uuid, b bool, cash money, raw bytea, ip inet, bits bit(5), r int4range, s "char", c char(5), updated_at timestamptz not null default clock_timestamp());
insert into kinds values (1, 'ü', '6f9619ff-8b86-d011-b42d-00c04fc964ff', true, 1234567.89, '\xdeadbeef00', '::1/64', '10101', '[1,5)', 'x', 'abcde'), (2, null, null, null, -0.01, '\x', '10.0.0.1', null, 'empty', null, null);
-- before the second run
insert into kinds values (3, 'sad', null, false, 92233720368547758.07, null, null, '00000', null, null, null);
-- before the third run
alter type mood add value 'new';

-- table nokey (no key)
create table nokey (what text, n int);
insert into nokey values ('a', 1), ('a', 1), ('b', null), (null, null);
-- before the second run
delete from nokey where what = 'b';
insert into nokey values ('c', 3);

-- table pairs
create table pairs (a int, b text, n int, updated_at timestamptz not null default clock_timestamp(), primary key (a, b));
insert into pairs values (1, 'x', 1), (1, 'X', 2), (1, '', 3), (2, 'x', 4), (1, ' x', 5);
-- before the second run
update pairs set n = n * 10, updated_at = clock_timestamp();
insert into pairs values (3, 'y', 6);

-- table Grö ße.x
create table "Grö ße.x" ("Id" int primary key, "a.b" text, "größe" int, "with blank" text, "A" int, "a" int, "quo""te" int, "updated_at" timestamptz not null default clock_timestamp());
insert into "Grö ße.x" values (1, 'x', 1, 'y', 1, 2, 3), (2, '', 2, null, 3, 4, 5);
-- before the second run
update "Grö ße.x" set "A" = 7, "updated_at" = clock_timestamp();

-- table order
create table "order" ("select" int primary key, "from" text, "group" numeric(10,2), "user" bool, updated_at timestamptz not null default clock_timestamp());
insert into "order" values (1, 'x', 1.10, true);
-- before the second run
insert into "order" values (2, 'y', -1.10, null);

-- table textkeys
create table textkeys (id text primary key, n int, updated_at timestamptz not null default clock_timestamp());
insert into textkeys values ('', 1), (' ', 2), ('a', 3), ('a ', 4), (' a', 5), ('A', 6), ('🚀', 7), (U&'\00e4', 8), (U&'a\0308', 9), ('null', 10), (E'a\nb', 11), (E'\t', 12), ('''', 13);
-- before the second run
update textkeys set n = n * 10, updated_at = clock_timestamp();
-- before the third run
delete from textkeys where id = 'a ';

-- table nullstamps
create table nullstamps (id int primary key, name text, updated_at timestamptz);
insert into nullstamps select i, 'old', case when i % 3 = 0 then clock_timestamp() end from generate_series(1, 30) i;
-- before the second run
update nullstamps set name = 'new';
insert into nullstamps values (31, 'new', clock_timestamp());
-- before the third run
insert into nullstamps values (32, 'newer', null);

-- table added
create table added (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into added values (1), (2);
-- before the second run
alter table added add late text;
insert into added values (3, clock_timestamp(), 'x');
update added set late = 'y', updated_at = clock_timestamp() where id = 1;
-- before the third run
insert into added values (4, clock_timestamp(), 'z');

-- table defaulted
create table defaulted (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into defaulted values (1), (2);
-- before the second run
alter table defaulted add late int not null default 7;
insert into defaulted values (3);
-- before the third run
insert into defaulted values (4);

-- table dropped
create table dropped (id int primary key, old text, updated_at timestamptz not null default clock_timestamp());
insert into dropped values (1, 'x'), (2, 'y');
-- before the second run
alter table dropped drop old;
insert into dropped values (3);
-- before the third run
insert into dropped values (4);

-- table retyped
create table retyped (id int primary key, n int, d text, w numeric(10,2), updated_at timestamptz not null default clock_timestamp());
insert into retyped values (1, 1, '5', 1.25), (2, null, '6', 2);
-- before the second run
alter table retyped alter n type text using 'n' || n, alter d type int using d::int, alter w type numeric(20,6);
insert into retyped values (3, 'abc', 7, 1.234567);
-- before the third run
insert into retyped values (4, 'abcd', 8, 12345678901234.123456);

-- table recolumned
create table recolumned (id int primary key, old text, updated_at timestamptz not null default clock_timestamp());
insert into recolumned values (1, 'x'), (2, 'y');
-- before the second run
alter table recolumned rename old to young;
insert into recolumned values (3, 'z');
-- before the third run
insert into recolumned values (4, 'zz');

-- table truncated
create table truncated (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into truncated select generate_series(1, 20);
-- before the second run
truncate truncated;
-- before the third run
insert into truncated select generate_series(101, 103);

-- table refilled
create table refilled (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into refilled select generate_series(1, 20);
-- before the second run
truncate refilled;
insert into refilled select generate_series(11, 30);

-- table deleted
create table deleted (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into deleted select generate_series(1, 20);
-- before the second run
delete from deleted where id <= 5;
-- before the third run
delete from deleted where id > 18;
insert into deleted values (21);

-- table backdated
create table backdated (id int primary key, name text, updated_at timestamptz not null default clock_timestamp());
insert into backdated values (1, 'x'), (2, 'y');
-- before the second run
insert into backdated values (3, 'late', '2020-01-01');
update backdated set name = 'new' where id = 1;
-- before the third run
insert into backdated values (4, 'z');

-- table rekeyed
create table rekeyed (id int primary key, uid int, updated_at timestamptz not null default clock_timestamp());
insert into rekeyed values (1, 1), (2, 2);
-- before the second run
alter table rekeyed drop constraint rekeyed_pkey, add primary key (id, uid);
insert into rekeyed values (1, 11), (2, 22);
-- before the third run
insert into rekeyed values (1, 111);

-- table moved
create table moved (id int primary key, name text, updated_at timestamptz not null default clock_timestamp());
insert into moved values (1, 'x'), (2, 'y');
-- before the second run
update moved set id = id + 100, updated_at = clock_timestamp() where id = 1;

-- table renamed
create table renamed (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into renamed values (1), (2);
-- before the second run
alter table renamed rename to newname;
insert into newname values (3);

-- table gone
create table gone (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into gone values (1), (2);
-- before the third run
drop table gone;

-- table latecomer
-- before the second run
create table latecomer (id int primary key, updated_at timestamptz not null default clock_timestamp());
insert into latecomer values (1);
