-- Nasty tables: each as it is made, then what happens to it before the second run, and before the third.
-- `-- table NAME`, and behind it what its replication key is where that is not updated_at.

-- table exact
create table exact (id int primary key, a decimal(65,30), b bigint unsigned, c decimal(20,0), d double, e float, updated_at datetime(6) not null default current_timestamp(6));
insert into exact (id, a, b, c, d, e) values (1, 12345678901234567890123456789012345.012345678901234567890123456789, 18446744073709551615, 12345678901234567890, 0.1, 0.1), (2, 0.1, 9007199254740993, -1, 1e308, 1e-30);
-- before the second run
insert into exact (id, a, b) values (3, -0.000000000000000000000000000001, 9223372036854775808);
-- before the third run
update exact set a = a + 1, updated_at = current_timestamp(6);

-- table wideids
create table wideids (id bigint unsigned primary key, name text, updated_at datetime(6) not null default current_timestamp(6));
insert into wideids (id, name) values (18446744073709551613, 'a'), (18446744073709551614, 'b'), (9007199254740993, 'c');
-- before the second run
update wideids set name = concat(name, '!'), updated_at = current_timestamp(6);

-- table decimalkeys
create table decimalkeys (id decimal(30,0) primary key, name text, updated_at datetime(6) not null default current_timestamp(6));
insert into decimalkeys (id, name) values (9007199254740993, 'a'), (9007199254740992, 'b'), (123456789012345678901234567890, 'c'), (123456789012345678901234567891, 'd');
-- before the second run
update decimalkeys set name = concat(name, '!'), updated_at = current_timestamp(6);

-- table moments
create table moments (id int primary key, d date, t datetime(6), z timestamp(6) null, c time(6), y year, updated_at datetime(6) not null default current_timestamp(6));
insert into moments (id, d, t, z, c, y) values (1, '2024-02-29', '2024-02-29 12:34:56.123456', '2024-02-29 12:34:56.123456', '12:34:56.123456', 2024), (2, '9999-12-31', '9999-12-31 23:59:59.999999', null, '00:00:00', 1901), (3, '0001-01-01', '1000-01-01', '1970-01-01 00:00:01', '23:59:59.999999', 2155);
-- before the second run
insert into moments (id, d) values (4, null);

-- table longtimes
create table longtimes (id int primary key, c time, updated_at datetime(6) not null default current_timestamp(6));
insert into longtimes (id, c) values (1, '838:59:59'), (2, '-838:59:59'), (3, '24:00:00'), (4, '-01:02:03');
-- before the second run
insert into longtimes (id, c) values (5, '100:00:00');

-- table zerodates
create table zerodates (id int primary key, d date, t datetime, updated_at datetime(6) not null default current_timestamp(6));
insert into zerodates (id, d, t) values (1, '0000-00-00', '0000-00-00 00:00:00'), (2, '2024-00-00', null), (3, '2024-01-01', '2024-01-01');
-- before the second run
insert into zerodates (id, d) values (4, '2024-02-00');

-- table kinds
create table kinds (id int primary key, e enum('a', 'B b', 'ü'), s set('x', 'y', 'z'), b bit(1), bb bit(10), raw varbinary(20), bin binary(4), bl blob, flag bool, tiny tinyint, j json, updated_at datetime(6) not null default current_timestamp(6));
insert into kinds (id, e, s, b, bb, raw, bin, bl, flag, tiny, j) values (1, 'ü', 'x,z', 1, 1023, x'deadbeef00', x'01', x'ff00', true, 127, '{"a": [1, 2.50, null], "ü": "🚀"}'), (2, 'a', '', 0, 5, x'', x'00000000', x'', false, -128, 'null'), (3, null, null, null, null, null, null, null, null, null, null);
-- before the second run
insert into kinds (id, tiny, flag, j) values (4, 2, 2, '12345678901234567890.123456789');
-- before the third run
update kinds set e = 'B b', updated_at = current_timestamp(6) where id = 1;

-- table nokey (no key)
create table nokey (what text, n int);
insert into nokey values ('a', 1), ('a', 1), ('b', null), (null, null);
-- before the second run
delete from nokey where what = 'b';
insert into nokey values ('c', 3);

-- table pairs
create table pairs (a int, b varchar(20) collate utf8mb4_bin, n int, updated_at datetime(6) not null default current_timestamp(6), primary key (a, b));
insert into pairs (a, b, n) values (1, 'x', 1), (1, 'X', 2), (1, '', 3), (2, 'x', 4), (1, ' x', 5), (1, '🚀', 6);
-- before the second run
update pairs set n = n * 10, updated_at = current_timestamp(6);
insert into pairs (a, b, n) values (3, 'y', 6);

-- table Grö ße
create table `Grö ße` (`Id` int primary key, `a.b` text, `größe` int, `with blank` text, `select` int, `quo"te` int, updated_at datetime(6) not null default current_timestamp(6));
insert into `Grö ße` values (1, 'x', 1, 'y', 1, 2, '2024-01-01'), (2, '', 2, null, 3, 4, '2024-01-01');
-- before the second run
update `Grö ße` set `größe` = 7, updated_at = current_timestamp(6);

-- table nullstamps
create table nullstamps (id int primary key, name text, updated_at datetime(6) null);
insert into nullstamps select seq, 'old', if(seq % 3 = 0, current_timestamp(6), null) from seq_1_to_30;
-- before the second run
update nullstamps set name = 'new';
insert into nullstamps values (31, 'new', current_timestamp(6));
-- before the third run
insert into nullstamps values (32, 'newer', null);

-- table added
create table added (id int primary key, updated_at datetime(6) not null default current_timestamp(6));
insert into added (id) values (1), (2);
-- before the second run
alter table added add late text;
insert into added (id, late) values (3, 'x');
update added set late = 'y', updated_at = current_timestamp(6) where id = 1;
-- before the third run
insert into added (id, late) values (4, 'z');

-- table amid
create table amid (id int primary key, b int, c int, updated_at datetime(6) not null default current_timestamp(6));
insert into amid (id, b, c) values (1, 2, 3);
-- before the second run
alter table amid add late int default 7 after id;
insert into amid (id, late, b, c) values (2, 11, 12, 13);
-- before the third run
insert into amid (id, late, b, c) values (3, 21, 22, 23);

-- table dropped
create table dropped (id int primary key, old text, updated_at datetime(6) not null default current_timestamp(6));
insert into dropped (id, old) values (1, 'x'), (2, 'y');
-- before the second run
alter table dropped drop old;
insert into dropped (id) values (3);
-- before the third run
insert into dropped (id) values (4);

-- table retyped
create table retyped (id int primary key, n int, d varchar(20), w decimal(10,2), updated_at datetime(6) not null default current_timestamp(6));
insert into retyped (id, n, d, w) values (1, 1, '5', 1.25), (2, null, '6', 2);
-- before the second run
alter table retyped modify n varchar(20), modify d int, modify w decimal(20,6);
insert into retyped (id, n, d, w) values (3, 'abc', 7, 1.234567);
-- before the third run
insert into retyped (id, n, d, w) values (4, 'abcd', 8, 12345678901234.123456);

-- table recolumned
create table recolumned (id int primary key, old text, updated_at datetime(6) not null default current_timestamp(6));
insert into recolumned (id, old) values (1, 'x'), (2, 'y');
-- before the second run
alter table recolumned change old young text;
insert into recolumned (id, young) values (3, 'z');
-- before the third run
insert into recolumned (id, young) values (4, 'zz');

-- table truncated
create table truncated (id int primary key, updated_at datetime(6) not null default current_timestamp(6));
insert into truncated (id) select seq from seq_1_to_20;
-- before the second run
truncate truncated;
-- before the third run
insert into truncated (id) values (101), (102);

-- table deleted
create table deleted (id int primary key, updated_at datetime(6) not null default current_timestamp(6));
insert into deleted (id) select seq from seq_1_to_20;
-- before the second run
delete from deleted where id <= 5;
-- before the third run
delete from deleted where id > 18;
insert into deleted (id) values (21);

-- table backdated
create table backdated (id int primary key, name text, updated_at datetime(6) not null default current_timestamp(6));
insert into backdated (id, name) values (1, 'x'), (2, 'y');
-- before the second run
insert into backdated values (3, 'late', '2020-01-01');
update backdated set name = 'new' where id = 1;
-- before the third run
insert into backdated (id, name) values (4, 'z');

-- table moved
create table moved (id int primary key, name text, updated_at datetime(6) not null default current_timestamp(6));
insert into moved (id, name) values (1, 'x'), (2, 'y');
-- before the second run
update moved set id = id + 100, updated_at = current_timestamp(6) where id = 1;

-- table renamed
create table renamed (id int primary key, updated_at datetime(6) not null default current_timestamp(6));
insert into renamed (id) values (1), (2);
-- before the second run
rename table renamed to newname;
insert into newname (id) values (3);

-- table gone
create table gone (id int primary key, updated_at datetime(6) not null default current_timestamp(6));
insert into gone (id) values (1), (2);
-- before the third run
drop table gone;

-- table latecomer
-- before the second run
create table latecomer (id int primary key, updated_at datetime(6) not null default current_timestamp(6));
insert into latecomer (id) values (1);
