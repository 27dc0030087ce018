-- How a job ends, fails, or is put off.

CREATE OR REPLACE FUNCTION rota.event(q rota.queue, j rota.job, what text, now bigint, error text, worker text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF q.event_ttl > 0 THEN
		INSERT INTO rota.event (at, queue, attempt, kind, grp, job, jobkind, error, worker)
		VALUES (now, q.id, j.attempt, what, j.grp, j.id, j.kind, coalesce(error, ''), coalesce(worker, ''));
	END IF;
END $$;

-- hint tells whoever listens. The settles of a worker do not use it, because a
-- NOTIFY makes commits wait for each other.
CREATE OR REPLACE FUNCTION rota.hint(q rota.queue, what text, id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('@channel@', what || q.name || chr(10) || id);
END $$;

CREATE OR REPLACE FUNCTION rota.add_tally(q integer, now bigint, c integer, f integer, d integer, x integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO rota.tally (queue, day, completed, failed, dead, cancelled) VALUES (q, now / 86400000000, c, f, d, x);
END $$;

-- fail adds a failed attempt to a job that the caller stores.
CREATE OR REPLACE FUNCTION rota.fail(j rota.job, now bigint, error text, trace text, worker text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	f jsonb := coalesce(j.failures, '[]') || jsonb_build_object('n', j.attempt, 'at', now, 'e', error, 't', trace, 'w', worker);
BEGIN
	WHILE jsonb_array_length(f) > 50 LOOP
		f := f - 0;
	END LOOP;
	RETURN f;
END $$;

-- drop_job deletes a job that is in no line, and its key unless that outlasts it.
CREATE OR REPLACE FUNCTION rota.drop_job(j rota.job) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF j.dedup_key IS NOT NULL THEN
		-- A key that a publish has locked is left to it: it looks for the holder itself.
		DELETE FROM rota.dedup d WHERE d.ctid = (SELECT x.ctid FROM rota.dedup x
			WHERE x.queue = j.queue AND x.key = j.dedup_key AND x.seq = j.seq AND x.states & (1 << 8) = 0 FOR UPDATE SKIP LOCKED);
	END IF;
	DELETE FROM rota.job x WHERE x.queue = j.queue AND x.id = j.id;
END $$;

-- finish ends a job: it is stored with its retention, or dropped. It gives the
-- state that readers see.
CREATE OR REPLACE FUNCTION rota.finish(q rota.queue, j rota.job, s integer, now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	keep bigint;
BEGIN
	PERFORM rota.add_tally(q.id, now, (s = 5)::integer, 0, (s = 6)::integer, (s = 7)::integer);
	j.inline := false;
	j.aside := NULL;
	j.cancel := false;
	j.finished_at := now;
	j.state := s;
	keep := CASE s WHEN 6 THEN q.keep_dead WHEN 7 THEN q.keep_cancelled ELSE
		greatest(coalesce(j.retention / 1000, q.keep_completed), CASE WHEN j.result IS NULL THEN 0 ELSE q.keep_result END) END;
	IF keep <= 0 THEN
		PERFORM rota.drop_job(j);
		RETURN 8;
	END IF;
	j.expires := least(now + keep, 4503599627370496);
	PERFORM rota.store_job(j);
	RETURN s;
END $$;

CREATE OR REPLACE FUNCTION rota.holds(q rota.queue, j rota.job) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN j.grp IS NOT NULL AND coalesce(j.on_exhausted, q.on_exhausted) = 2;
END $$;

-- die makes a job a dead letter. The caller holds its group if holds says so.
CREATE OR REPLACE FUNCTION rota.die(q rota.queue, j rota.job, now bigint, error text, worker text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	s integer;
BEGIN
	s := rota.finish(q, j, 6, now);
	PERFORM rota.event(q, j, 'dead', now, error, worker);
	IF rota.holds(q, j) THEN
		PERFORM rota.event(q, j, 'held', now, error, worker);
	END IF;
	RETURN s;
END $$;

CREATE OR REPLACE FUNCTION rota.exhausted(j rota.job) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN j.max_attempts >= 0 AND j.attempt >= j.max_attempts;
END $$;

-- running_job is the job that a leased lane runs.
CREATE OR REPLACE FUNCTION rota.running_job(l rota.lane) RETURNS rota.job LANGUAGE plpgsql STABLE AS $$
DECLARE
	j rota.job;
BEGIN
	IF l.lone THEN
		SELECT * INTO j FROM rota.job x WHERE x.queue = l.queue AND x.id = l.key AND x.seq = l.job;
	ELSE
		SELECT * INTO j FROM rota.job x WHERE x.queue = l.queue AND x.grp = l.key AND x.inline AND x.place >= l.floor AND x.seq = l.job
		ORDER BY x.place, x.seq LIMIT 1;
	END IF;
	IF j.seq IS NOT NULL THEN
		j.attempt := l.attempt;
		j.claimed_at := l.claimed_at;
		j.prio := l.tier;
	END IF;
	RETURN j;
END $$;

-- expire ends a lease that has run out, in a lane at t that the caller has locked.
-- The lane keeps its due, so that it can be claimed at once, or removed by the
-- claim when its line is empty. It gives where the lane is then if it has a turn.
CREATE OR REPLACE FUNCTION rota.expire(q rota.queue, l rota.lane, t tid, now bigint) RETURNS tid LANGUAGE plpgsql AS $$
DECLARE
	j rota.job := rota.running_job(l);
	ended boolean := j.seq IS NULL;
	lost CONSTANT text := '@lease_expired@';
BEGIN
	IF NOT ended THEN
		j.failures := rota.fail(j, now, lost, '', l.owner);
		PERFORM rota.add_tally(q.id, now, 0, 1, 0, 0);
		PERFORM rota.event(q, j, 'lease_lost', now, lost, l.owner);
		ended := j.cancel OR rota.exhausted(j);
		IF j.cancel THEN
			PERFORM rota.finish(q, j, 7, now);
			PERFORM rota.event(q, j, 'cancelled', now, '', l.owner);
		ELSIF ended THEN
			PERFORM rota.die(q, j, now, lost, l.owner);
			IF rota.holds(q, j) THEN
				l.held := true;
				l.held_by := j.id;
			END IF;
		ELSE
			j.state := 2;
			PERFORM rota.store_job(j);
		END IF;
		IF ended AND j.result IS NOT NULL THEN
			PERFORM rota.hint(q, 'f', j.id);
		END IF;
	END IF;
	IF ended THEN
		j := NULL;
		IF NOT l.lone THEN
			j := rota.head(l.queue, l.key, l.floor);
		END IF;
	END IF;
	RETURN rota.free_lane(l, t, CASE WHEN j.seq IS NOT NULL OR NOT (l.lone OR l.paused OR l.held) THEN l.due END);
END $$;
