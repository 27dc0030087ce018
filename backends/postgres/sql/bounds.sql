-- Lower bounds for the scans of a claim. A scan in turn order begins at the oldest
-- due time, where dead entries pile up; while an old snapshot is held open
-- anywhere in the database they can not be removed. So a process remembers from
-- where on there is anything alive, and hands that to its next claim:
--
--   1 mark: all transactions that were given an id before this time have ended
--   2, 3    a time, and an id behind those of all transactions that had one then
--   4       of at of arrivals of jobs that are not due
--   5       of jobs standing aside
--   8..12   of at of arrivals, by tier;  13..17 of lanes;  18..22 of leases
--   23      until when the others below hold, 0 for not at all
--   24      as 5;  25..39 as 8..22;  40 as 4: what lies before has been passed
--   41      since when any of them holds
--
-- Every transaction writes due times, and arrivals, that lie behind the
-- time at which it got its id, or else calls rewound. So what is written
-- below the mark is visible, and what is not visible yet lies above it. Fifty
-- milliseconds are left for jobs that join a little late.
--
-- What was passed is alive, but an open transaction of a program keeps it from being claimed.
-- When that is much, claims leave it alone for a second or four times as long as it took to pass
-- it, but for ten seconds at most, and take what lies behind.

-- bounds_valid drops bounds that may not hold any more.
CREATE OR REPLACE FUNCTION rota.bounds_valid(b bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	none bigint[] := array_fill(0::bigint, ARRAY[41]);
	now bigint := rota.us();
BEGIN
	IF pg_is_in_recovery() THEN -- a standby has no era, and a claim has no use there
		RAISE SQLSTATE '25006' USING MESSAGE = 'cannot claim during recovery';
	END IF;
	IF NOT EXISTS (SELECT 1 FROM rota.era x WHERE x.one) THEN -- no bounds of anybody hold
		INSERT INTO rota.era DEFAULT VALUES ON CONFLICT DO NOTHING;
		PERFORM rota.rewound();
	END IF;
	IF coalesce(array_length(b, 1), 0) <> 41 OR greatest(b[1], b[2]) > now THEN
		RETURN none;
	END IF;
	IF b[23] <> 0 AND (b[23] < now OR now - b[41] NOT BETWEEN 0 AND 10000000) THEN
		b[23:41] := none[23:41];
	END IF;
	IF coalesce(pg_sequence_last_value('rota.rewind'::regclass), 0) >= b[1] THEN
		none[1] := b[1];
		none[2] := b[2];
		none[3] := b[3];
		none[23:41] := b[23:41];
		RETURN none;
	END IF;
	RETURN b;
END $$;

-- passed notes that a claim that began at a time has passed what lies before a place; null
-- changes nothing.
CREATE OR REPLACE FUNCTION rota.passed(b bigint[], i integer, place bigint, began bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	now CONSTANT bigint := rota.us();
BEGIN
	IF place IS NOT NULL THEN
		IF b[23] = 0 THEN
			b[41] := now;
		END IF;
		b[i] := place;
		b[23] := now + greatest(1000000, 4 * (now - began));
	END IF;
	RETURN b;
END $$;

-- firsts gives the first due times that lie behind the bounds: of arrivals, of
-- lanes and of leases, the latter two up to a time, each by tier (so 15 of them,
-- null for none), and at of the first arrival of a job that is not due.
-- Leases that were settled lie dead at the end they would have had, ahead of now.
CREATE OR REPLACE FUNCTION rota.firsts(q rota.queue, b bigint[], p_until bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	f bigint[];
BEGIN
	SELECT array_agg((SELECT a.at - q.head_start FROM rota.arrival a WHERE a.queue = q.id AND a.tier = t AND a.at >= b[8 + t] ORDER BY a.at LIMIT 1))
		|| array_agg((SELECT x.due FROM rota.lane x WHERE x.queue = q.id AND x.tier = t AND x.leased = false AND x.due >= b[13 + t] AND x.due <= p_until ORDER BY x.due LIMIT 1))
		|| array_agg((SELECT x.due FROM rota.lane x WHERE x.queue = q.id AND x.tier = t AND x.leased = true AND x.due >= b[18 + t] AND x.due <= p_until ORDER BY x.due LIMIT 1))
		|| rota.first_later(q.id, b[4])
	INTO f FROM generate_series(0, 4) t;
	RETURN f;
END $$;

-- first_later is at of the first arrival of a job that is not due.
CREATE OR REPLACE FUNCTION rota.first_later(p_queue integer, low bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT a.at FROM rota.arrival a WHERE a.queue = p_queue AND a.tier = 5 AND a.at >= low ORDER BY a.at LIMIT 1);
END $$;

-- lowest_place bounds the places of all jobs that stand in line in groups without a
-- lane: each of these has an arrival with the same at or a lesser one.
CREATE OR REPLACE FUNCTION rota.lowest_place(b bigint[]) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
	SELECT least(b[4], b[8], b[9], b[10], b[11], b[12])
$$;

-- bounds_mark sets a new mark when it is time to. What firsts gives after that, up
-- to the time of the new mark (which is b[2] before), is all there is.
--
-- Which ids have been given out only a new one tells: the xmax of a snapshot lies behind
-- the last transaction that has ended, and others may be under way beyond it.
CREATE OR REPLACE FUNCTION rota.bounds_mark(b bigint[], now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
	IF now - b[2] >= 20000 AND (b[2] = 0 OR pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= b[3]) THEN
		b[1] := b[2];
		b[2] := now;
		b[3] := pg_current_xact_id()::text::bigint + 1;
	END IF;
	RETURN b;
END $$;

-- bounds_raise brings the bounds up to what firsts has found since the last mark was
-- set.
CREATE OR REPLACE FUNCTION rota.bounds_raise(q rota.queue, b bigint[], f bigint[], p_aside bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	low bigint := b[1] - 50000;
BEGIN
	IF coalesce(pg_sequence_last_value('rota.rewind'::regclass), 0) < b[1] THEN
		b[4] := least(low, f[16]);
		b[5] := least(low, p_aside);
		FOR i IN 1..15 LOOP
			b[7 + i] := least(low, CASE WHEN i <= 5 THEN f[i] + q.head_start ELSE f[i] END);
		END LOOP;
	END IF;
	RETURN b;
END $$;
