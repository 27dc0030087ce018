-- Lower bounds for the scans of a claim. A scan in turn order begins at the oldest
-- due time, where dead entries pile up; while an old snapshot is held open
-- anywhere in the database they can not be removed. So a process remembers from
-- where on there is anything alive, and hands that to its next claim:
--
--   1 mark: all transactions that were given an id before this time have ended
--   2, 3    a time, and the first transaction id not given out then
--   5       of jobs standing aside
--   8..12   of arrivals, by tier;  13..17 of lanes;  18..22 of leases
--
-- Every transaction writes due times that lie behind the time at which it got its
-- id (less the head start for arrivals), or else calls rewound. So what is written
-- below the mark is visible, and what is not visible yet lies above it. Fifty
-- milliseconds are left for jobs that join a little late.

-- bounds_valid drops bounds that may not hold any more.
CREATE OR REPLACE FUNCTION rota.bounds_valid(b bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	none bigint[] := array_fill(0::bigint, ARRAY[22]);
BEGIN
	IF coalesce(array_length(b, 1), 0) <> 22 OR greatest(b[1], b[2]) > rota.us() THEN
		RETURN none;
	END IF;
	IF (SELECT last_value FROM rota.rewind) >= b[1] THEN
		none[1] := b[1];
		none[2] := b[2];
		none[3] := b[3];
		RETURN none;
	END IF;
	RETURN b;
END $$;

-- bounds_next finds new bounds when it is time to.
CREATE OR REPLACE FUNCTION rota.bounds_next(q rota.queue, b bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	now bigint := rota.us();
	snap pg_snapshot;
	low bigint := b[2] - 50000;
	t integer;
BEGIN
	IF now - b[2] < 20000 THEN
		RETURN b;
	END IF;
	snap := pg_current_snapshot();
	IF b[2] > 0 THEN
		IF pg_snapshot_xmin(snap)::text::bigint < b[3] THEN
			RETURN b;
		END IF;
		b[1] := b[2];
		IF (SELECT last_value FROM rota.rewind) < b[1] THEN
			b[5] := least(low, (SELECT j.aside FROM rota.job j WHERE j.queue = q.id AND j.aside >= b[5] ORDER BY j.aside LIMIT 1));
			FOR t IN 0..4 LOOP
				b[8 + t] := least(low - q.head_start, (SELECT a.due FROM rota.arrival a
					WHERE a.queue = q.id AND a.tier = t AND a.due >= b[8 + t] ORDER BY a.due LIMIT 1));
				b[13 + t] := least(low, (SELECT x.due FROM rota.lane x
					WHERE x.queue = q.id AND x.tier = t AND x.leased = false AND x.due >= b[13 + t] ORDER BY x.due LIMIT 1));
				b[18 + t] := least(low, (SELECT x.due FROM rota.lane x
					WHERE x.queue = q.id AND x.tier = t AND x.leased = true AND x.due >= b[18 + t] ORDER BY x.due LIMIT 1));
			END LOOP;
		END IF;
	END IF;
	b[2] := now;
	b[3] := pg_snapshot_xmax(snap)::text::bigint;
	RETURN b;
END $$;
