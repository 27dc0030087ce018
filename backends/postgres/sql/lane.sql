-- What happens to a lane when its line changes. docs/state-machine.md has the
-- rules; all of these hold the lane's row lock, which is the group's mutex.

-- hurry bounds how long the rest of a call waits for a lock. A program's transaction
-- may hold one for as long as it likes; whoever waits for that must not hold up others
-- with the locks it has. So the call fails after a little while (55P03), lets go of all,
-- and is made again.
CREATE OR REPLACE FUNCTION rota.hurry() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('lock_timeout', '100ms', true);
END $$;

-- exists_queue: a queue that was deleted is there again while it has a job, because a
-- publish may stand in anybody's transaction, where it must not lock the queue's row.
CREATE OR REPLACE FUNCTION rota.exists_queue(q rota.queue) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN q.alive OR EXISTS (SELECT 1 FROM rota.job j WHERE j.queue = q.id);
END $$;

-- revive makes such a queue alive. Whatever may take the last job out of it does that
-- before; a claim or settle that finds the row locked goes on. It gives the queue as it is now.
CREATE OR REPLACE FUNCTION rota.revive(q rota.queue) RETURNS rota.queue LANGUAGE plpgsql AS $$
BEGIN
	IF NOT q.alive AND EXISTS (SELECT 1 FROM rota.job j WHERE j.queue = q.id) THEN
		UPDATE rota.queue x SET alive = true
		WHERE x.id = (SELECT y.id FROM rota.queue y WHERE y.id = q.id AND NOT y.alive FOR NO KEY UPDATE SKIP LOCKED);
		SELECT * INTO q FROM rota.queue x WHERE x.id = q.id;
	END IF;
	RETURN q;
END $$;

-- head is the job in front of a group's line.
CREATE OR REPLACE FUNCTION rota.head(q integer, g text, floor bigint) RETURNS rota.job LANGUAGE plpgsql STABLE AS $$
DECLARE
	h rota.job;
BEGIN
	SELECT * INTO h FROM rota.job j WHERE j.queue = q AND j.grp = g AND j.inline AND j.place >= floor
	ORDER BY j.place, j.seq LIMIT 1;
	RETURN h;
END $$;

-- lock_lane locks the lane of a group and makes it if the group has jobs, or
-- anyway if make is set. Its tier is settled before anybody can change the line.
CREATE OR REPLACE FUNCTION rota.lock_lane(q rota.queue, g text, make boolean) RETURNS rota.lane LANGUAGE plpgsql AS $$
DECLARE
	l rota.lane;
	h rota.job;
BEGIN
	LOOP
		SELECT * INTO l FROM rota.lane x WHERE x.queue = q.id AND x.key = g AND NOT x.lone FOR UPDATE;
		IF FOUND THEN
			IF l.tier < 0 THEN
				h := rota.head(q.id, g, 0);
				IF h.seq IS NOT NULL THEN
					UPDATE rota.lane x SET tier = h.prio WHERE x.queue = q.id AND x.key = g AND NOT x.lone RETURNING x.* INTO l;
				END IF;
			END IF;
			RETURN l;
		END IF;
		h := rota.head(q.id, g, 0);
		IF h.seq IS NULL AND NOT make THEN
			RETURN NULL;
		END IF;
		PERFORM rota.make_lane(q, g, h);
	END LOOP;
END $$;

-- make_lane makes the lane of a group that has none, whose line begins with h; false
-- when another transaction was faster. It waits for one that is at it.
CREATE OR REPLACE FUNCTION rota.make_lane(q rota.queue, g text, h rota.job) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	v_due CONSTANT bigint := CASE WHEN h.run_at > h.created_at THEN h.run_at ELSE h.created_at - q.head_start END;
BEGIN
	INSERT INTO rota.seat (queue, key) VALUES (q.id, g) ON CONFLICT (queue, key) DO NOTHING;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	IF v_due < rota.us() THEN
		PERFORM rota.rewound();
	END IF;
	INSERT INTO rota.lane (queue, key, tier, due) VALUES (q.id, g, coalesce(h.prio, -1), v_due);
	RETURN true;
END $$;

-- vacate removes lanes of groups whose lines were seen empty, with their seats. The
-- caller has locked the lanes. A claim takes away the arrival of a group that has
-- a seat while it holds the seat's lock; so this locks the seats first, and then
-- looks at the lines once more, which finds the jobs of all arrivals that were
-- taken away before. A line that is not empty keeps its lane, without a lease.
-- Claims do not wait here (p_wait): what they can not lock is left to the next.
CREATE OR REPLACE FUNCTION rota.vacate(p_queue integer, p_tid tid[], p_key text[], p_floor bigint[], p_wait boolean, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	l_tid tid[]; l_key text[]; l_floor bigint[]; s_tid tid[];
BEGIN
	IF p_wait THEN
		SELECT array_agg(k.tid), array_agg(k.key), array_agg(k.floor), array_agg(s.tid) INTO l_tid, l_key, l_floor, s_tid
		FROM (SELECT * FROM unnest(p_tid, p_key, p_floor) AS y(tid, key, floor) ORDER BY y.key COLLATE "C") k,
		LATERAL (SELECT x.ctid AS tid FROM rota.seat x WHERE x.queue = p_queue AND x.key = k.key FOR UPDATE) s;
	ELSE
		SELECT array_agg(k.tid), array_agg(k.key), array_agg(k.floor), array_agg(s.tid) INTO l_tid, l_key, l_floor, s_tid
		FROM unnest(p_tid, p_key, p_floor) AS k(tid, key, floor),
		LATERAL (SELECT x.ctid AS tid FROM rota.seat x WHERE x.queue = p_queue AND x.key = k.key FOR UPDATE SKIP LOCKED) s;
		IF coalesce(array_length(l_tid, 1), 0) < array_length(p_tid, 1) THEN
			UPDATE rota.lane x SET due = now + 1 FROM unnest(p_tid) AS y(tid) WHERE x.ctid = y.tid AND y.tid <> ALL (coalesce(l_tid, '{}'));
		END IF;
	END IF;
	WITH h AS MATERIALIZED (
		SELECT x.tid, x.seat, j.run_at, j.prio FROM unnest(l_tid, l_key, l_floor, s_tid) AS x(tid, key, floor, seat)
		LEFT JOIN LATERAL (SELECT y.run_at, y.prio FROM rota.job y WHERE y.queue = p_queue AND y.grp = x.key AND y.inline AND y.place >= x.floor
			ORDER BY y.place, y.seq LIMIT 1) j ON true
	), gone AS (
		DELETE FROM rota.lane x USING h WHERE x.ctid = h.tid AND h.run_at IS NULL
	), seats AS (
		DELETE FROM rota.seat x USING h WHERE x.ctid = h.seat AND h.run_at IS NULL
	)
	UPDATE rota.lane x SET due = greatest(now, h.run_at), tier = CASE WHEN x.tier < 0 THEN h.prio ELSE x.tier END, paused = false, held = false, held_by = NULL,
		leased = false, salt = NULL, job = NULL, owner = NULL, attempt = NULL, claimed_at = NULL
	FROM h WHERE x.ctid = h.tid AND h.run_at IS NOT NULL;
END $$;

-- free_lane puts a lane that has no lease any more to its place among the turns:
-- at is when, null that its line is empty. An empty lane is forgotten unless a
-- person did something to it. t is where the lane is, null if the caller does not
-- know. It gives where the lane is then if it has a turn. A lane whose line was empty gets
-- the tier of the head, as no claim looks for one that has none.
CREATE OR REPLACE FUNCTION rota.free_lane(l rota.lane, t tid, at bigint) RETURNS tid LANGUAGE plpgsql AS $$
BEGIN
	IF t IS NULL THEN
		SELECT x.ctid INTO t FROM rota.lane x WHERE x.queue = l.queue AND x.key = l.key AND x.lone = l.lone;
	END IF;
	IF at IS NULL AND l.lone THEN
		DELETE FROM rota.lane x WHERE x.ctid = t;
		RETURN NULL;
	END IF;
	IF at IS NULL AND NOT (l.paused OR l.held) THEN
		PERFORM rota.vacate(l.queue, ARRAY[t], ARRAY[l.key], ARRAY[l.floor], true, rota.us());
		RETURN NULL;
	END IF;
	UPDATE rota.lane x SET
		due = CASE WHEN l.paused OR l.held THEN NULL ELSE at END,
		tier = CASE WHEN at IS NULL THEN -1 WHEN x.tier < 0 THEN coalesce((SELECT j.prio FROM rota.job j WHERE j.queue = l.queue AND j.grp = l.key AND j.inline
			AND j.place >= 0 ORDER BY j.place, j.seq LIMIT 1), 0) ELSE x.tier END,
		floor = CASE WHEN at IS NULL THEN 0 ELSE x.floor END,
		leased = false, salt = NULL, job = NULL, owner = NULL, attempt = NULL, claimed_at = NULL,
		paused = l.paused, held = l.held, held_by = l.held_by
	WHERE x.ctid = t RETURNING x.ctid INTO t;
	RETURN CASE WHEN NOT (l.paused OR l.held) THEN t END;
END $$;

-- head_changed gives a lane its due when its head may be another than before,
-- other than by the end of a lease.
CREATE OR REPLACE FUNCTION rota.head_changed(l rota.lane, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	h rota.job;
BEGIN
	IF l.leased THEN
		UPDATE rota.lane x SET paused = l.paused, held = l.held, held_by = l.held_by
		WHERE x.queue = l.queue AND x.key = l.key AND x.lone = l.lone;
		RETURN;
	END IF;
	IF l.lone THEN
		SELECT * INTO h FROM rota.job j WHERE j.queue = l.queue AND j.id = l.key AND j.state < 5;
	ELSE
		h := rota.head(l.queue, l.key, 0);
	END IF;
	PERFORM rota.free_lane(l, NULL, CASE
		WHEN h.seq IS NULL THEN NULL
		WHEN h.run_at > now THEN h.run_at
		WHEN l.due <= now THEN l.due
		ELSE now END);
END $$;

-- join_line puts a job that exists already into its line at a place. since is the
-- time of joining. It stores the job.
CREATE OR REPLACE FUNCTION rota.join_line(q rota.queue, j rota.job, at bigint, since bigint, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	l rota.lane;
	v_due bigint;
	first boolean;
BEGIN
	j.place := at;
	j.aside := NULL;
	v_due := CASE WHEN j.run_at > now THEN j.run_at WHEN j.grp IS NULL OR j.claimed_at IS NOT NULL THEN since ELSE since - q.head_start END;
	IF v_due < now THEN
		PERFORM rota.rewound();
	END IF;
	IF j.grp IS NULL THEN
		PERFORM rota.store_job(j);
		INSERT INTO rota.lane (queue, key, lone, born, tier, due) VALUES (q.id, j.id, true, j.seq, j.prio, v_due);
		RETURN;
	END IF;
	l := rota.lock_lane(q, j.grp, true);
	first := l.tier < 0;
	IF first THEN
		l.tier := j.prio;
		-- Jobs of open transactions may have places before this one: the floor stays below them.
		UPDATE rota.lane x SET tier = j.prio, floor = least(x.floor, at),
			due = CASE WHEN l.paused OR l.held THEN NULL ELSE v_due END
		WHERE x.queue = q.id AND x.key = j.grp AND NOT x.lone;
	ELSIF l.floor > at THEN
		UPDATE rota.lane x SET floor = at WHERE x.queue = q.id AND x.key = j.grp AND NOT x.lone;
	END IF;
	j.prio := l.tier;
	j.inline := true;
	PERFORM rota.store_job(j);
	IF NOT first THEN
		PERFORM rota.head_changed(l, now);
	END IF;
END $$;

-- store_job writes a job back as a whole.
CREATE OR REPLACE FUNCTION rota.store_job(j rota.job) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE rota.job x SET
		place = j.place, run_at = j.run_at, aside = j.aside, claimed_at = j.claimed_at, finished_at = j.finished_at,
		expires = j.expires, deadline = j.deadline, timeout = j.timeout, attempt = j.attempt, max_attempts = j.max_attempts,
		state = j.state, prio = j.prio, inline = j.inline, cancel = j.cancel, kind = j.kind, payload = j.payload,
		headers = j.headers, result = j.result, failures = j.failures
	WHERE x.queue = j.queue AND x.id = j.id;
END $$;
