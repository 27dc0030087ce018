-- Acts of administration on jobs and groups.

-- unhold ends the hold that a job has put on its group.
CREATE OR REPLACE FUNCTION rota.unhold(q rota.queue, j rota.job, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	l rota.lane;
BEGIN
	SELECT * INTO l FROM rota.lane x WHERE x.queue = q.id AND x.key = j.grp AND NOT x.lone FOR UPDATE;
	IF l.held AND l.held_by = j.id THEN
		l.held := false;
		l.held_by := NULL;
		PERFORM rota.head_changed(l, now);
	END IF;
END $$;

-- retake gives a job that a person moves back its key again; it returns the holder
-- when another job has it.
CREATE OR REPLACE FUNCTION rota.retake(q rota.queue, j rota.job, now bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	d rota.dedup;
	o rota.job;
	s integer := 8;
	free boolean;
BEGIN
	LOOP
		SELECT * INTO d FROM rota.dedup x WHERE x.queue = q.id AND x.key = j.dedup_key;
		free := NOT FOUND OR coalesce(d.until <= now, false);
		IF NOT free AND d.seq <> j.seq THEN
			SELECT * INTO o FROM rota.job x WHERE x.queue = q.id AND x.id = d.id AND x.seq = d.seq;
			s := CASE WHEN FOUND THEN rota.state_of(o) ELSE 8 END;
			IF d.states & (1 << s) <> 0 THEN
				RETURN d.id;
			END IF;
			free := true;
		END IF;
		EXIT WHEN NOT free OR j.dedup_while & (1 << 2) = 0
			OR rota.take_key(q.id, j.dedup_key, j.id, j.seq, j.dedup_while, NULL, coalesce(d.seq, 0));
	END LOOP;
	RETURN NULL;
END $$;

-- move_one moves a job. verdict: 0 done, 1 not found, 2 its state (in state) does
-- not allow it, 3 its key belongs to holder.
CREATE OR REPLACE FUNCTION rota.move_one(q rota.queue, p_id text, p_to integer, now bigint, OUT verdict integer, OUT state integer, OUT holder text, OUT dedup text) LANGUAGE plpgsql AS $$
DECLARE
	j rota.job;
	was rota.job;
	l rota.lane;
BEGIN
	LOOP
		SELECT * INTO was FROM rota.job x WHERE x.queue = q.id AND x.id = p_id;
		IF NOT FOUND THEN
			verdict := 1;
			RETURN;
		END IF;
		l := NULL;
		IF was.grp IS NULL AND was.state < 5 THEN
			SELECT * INTO l FROM rota.lane x WHERE x.queue = q.id AND x.key = p_id AND x.lone FOR UPDATE;
		ELSIF was.grp IS NOT NULL AND (was.inline OR p_to = 2) THEN
			l := rota.lock_lane(q, was.grp, false);
		END IF;
		SELECT * INTO j FROM rota.job x WHERE x.queue = q.id AND x.id = p_id FOR UPDATE;
		-- Anything else than what was locked for: look again.
		EXIT WHEN j.seq = was.seq AND j.inline = was.inline AND (j.state < 5) = (was.state < 5);
	END LOOP;
	state := j.state;
	IF l.leased AND l.job = j.seq AND (j.inline OR l.lone) THEN
		state := 3;
		verdict := CASE p_to WHEN 7 THEN 0 ELSE 2 END;
		IF p_to = 7 THEN
			UPDATE rota.job x SET cancel = true WHERE x.queue = q.id AND x.id = p_id;
			PERFORM rota.hint(q, 'c', p_id);
		END IF;
		RETURN;
	END IF;
	IF j.state = p_to THEN
		verdict := 2;
		RETURN;
	END IF;
	IF p_to = 2 AND j.dedup_key IS NOT NULL THEN
		holder := rota.retake(q, j, now);
		IF holder IS NOT NULL THEN
			verdict := 3;
			dedup := j.dedup_key;
			RETURN;
		END IF;
	END IF;
	verdict := 0;
	IF j.inline THEN
		j.prio := l.tier;
	END IF;
	IF p_to = 2 THEN
		PERFORM rota.redrive(q, j, l, now);
	ELSE
		j.inline := false;
		IF p_to = 8 THEN
			PERFORM rota.event(q, j, 'deleted', now, '', '');
			PERFORM rota.drop_job(j);
		ELSE
			PERFORM rota.finish(q, j, p_to, now);
			PERFORM rota.event(q, j, CASE p_to WHEN 7 THEN 'cancelled' ELSE 'dead' END, now, '', '');
			IF j.result IS NOT NULL THEN
				PERFORM rota.hint(q, 'f', j.id);
			END IF;
		END IF;
		IF was.inline OR was.state < 5 AND l.lone THEN
			PERFORM rota.head_changed(l, now);
		END IF;
	END IF;
	IF p_to <> 6 AND j.grp IS NOT NULL THEN
		PERFORM rota.unhold(q, j, now);
	END IF;
END $$;

-- redrive puts a job back in line. l is the lane it stands in, if it does.
CREATE OR REPLACE FUNCTION rota.redrive(q rota.queue, j rota.job, l rota.lane, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF j.place = 0 THEN
		j.place := now;
	END IF;
	j.run_at := now;
	j.finished_at := NULL;
	j.expires := NULL;
	j.cancel := false;
	IF rota.exhausted(j) THEN
		j.max_attempts := j.attempt + 1;
	END IF;
	PERFORM rota.event(q, j, 'redriven', now, '', '');
	IF j.state < 5 AND (j.inline OR j.grp IS NULL) THEN
		j.state := 2;
		PERFORM rota.store_job(j);
		PERFORM rota.head_changed(l, now);
		RETURN;
	END IF;
	j.state := 2;
	PERFORM rota.join_line(q, j, j.place, now, now);
END $$;

-- move moves the named jobs, or the oldest of a state. It gives a row for each, and
-- a last one (o_ord 0) whose o_verdict tells if there are more.
CREATE OR REPLACE FUNCTION rota.move(p_queue text, p_to integer, p_ids text[], p_from integer, p_grp text, p_limit integer)
RETURNS TABLE (o_ord integer, o_verdict integer, o_state integer, o_holder text, o_dedup text) LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	q rota.queue;
	v record;
	ids text[];
	more boolean := false;
	moved integer := 0;
	stuck integer := 0; -- jobs that stay where they are, in front of those not looked at
	v_now bigint;
BEGIN
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue;
	PERFORM rota.hurry();
	q := rota.revive(q);
	PERFORM pg_current_xact_id();
	v_now := rota.us();
	WHILE p_ids IS NULL AND q.id IS NOT NULL AND NOT more LOOP
		ids := (rota.ids_in(q, p_from, p_grp, stuck + p_limit - moved + 1))[stuck + 1:];
		EXIT WHEN coalesce(array_length(ids, 1), 0) = 0;
		FOREACH o_holder IN ARRAY ids LOOP
			more := moved = p_limit;
			EXIT WHEN more;
			SELECT * INTO v FROM rota.move_one(q, o_holder, p_to, v_now);
			IF v.verdict <> 0 THEN
				stuck := stuck + 1;
				CONTINUE;
			END IF;
			moved := moved + 1;
			o_ord := moved; o_verdict := 0; o_state := v.state; o_holder := NULL; o_dedup := NULL;
			RETURN NEXT;
		END LOOP;
	END LOOP;
	FOR i IN 1..coalesce(array_length(p_ids, 1), 0) LOOP
		o_ord := i;
		IF q.id IS NULL THEN
			o_verdict := 1;
		ELSE
			SELECT * INTO v FROM rota.move_one(q, p_ids[i], p_to, v_now);
			o_verdict := v.verdict; o_state := v.state; o_holder := v.holder; o_dedup := v.dedup;
		END IF;
		RETURN NEXT;
	END LOOP;
	o_ord := 0;
	o_verdict := more::integer;
	RETURN NEXT;
END $$;

-- ids_in lists the oldest jobs of a state; of running ones those that were not
-- asked to end.
CREATE OR REPLACE FUNCTION rota.ids_in(q rota.queue, p_state integer, p_grp text, n integer) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	now CONSTANT bigint := rota.us();
BEGIN
	IF p_state = 3 THEN
		RETURN (SELECT array_agg(y.id ORDER BY y.claimed, y.seq) FROM (
			SELECT r.* FROM rota.running_ids(q.id) r
			WHERE (SELECT NOT j.cancel AND (p_grp IS NULL OR j.grp = p_grp) FROM rota.job j WHERE j.queue = q.id AND j.id = r.id LIMIT 1)
			ORDER BY r.claimed, r.seq LIMIT n) y);
	ELSIF p_state = 2 AND p_grp IS NOT NULL THEN -- in its line, or about to join it
		RETURN (SELECT array_agg(y.id ORDER BY y.place, y.seq) FROM (
			SELECT x.* FROM (
				(SELECT j.id, j.place, j.seq FROM rota.job j WHERE j.queue = q.id AND j.grp = p_grp AND j.inline AND coalesce(j.state, 0) = 2 -- not by job_pending
					AND (SELECT l.job FROM rota.lane l WHERE l.queue = j.queue AND l.key = j.grp AND l.lone = false LIMIT 1) IS DISTINCT FROM j.seq
				ORDER BY j.place, j.seq LIMIT n)
				UNION ALL
				(SELECT j.id, j.place, j.seq FROM rota.job j WHERE j.queue = q.id AND j.aside <= now AND j.grp = p_grp AND j.state = 2 ORDER BY j.aside, j.seq LIMIT n)) x
			ORDER BY x.place, x.seq LIMIT n) y);
	ELSIF p_state = 2 THEN
		RETURN (SELECT array_agg(y.id ORDER BY y.place, y.seq) FROM (
			SELECT j.id, j.place, j.seq FROM rota.job j WHERE j.queue = q.id AND j.state = 2 AND (p_grp IS NULL OR j.grp = p_grp)
				AND (SELECT l.job FROM rota.lane l WHERE l.queue = j.queue AND l.key = coalesce(j.grp, j.id) AND l.lone = (j.grp IS NULL) LIMIT 1) IS DISTINCT FROM j.seq
			ORDER BY j.place, j.seq LIMIT n) y);
	ELSIF p_state IN (1, 4) THEN
		RETURN (SELECT array_agg(y.id ORDER BY y.run_at, y.seq) FROM (
			SELECT j.id, j.run_at, j.seq FROM rota.job j WHERE j.queue = q.id AND j.state = p_state AND j.state IN (1, 4) AND (p_grp IS NULL OR j.grp = p_grp)
				AND (SELECT l.job FROM rota.lane l WHERE l.queue = j.queue AND l.key = coalesce(j.grp, j.id) AND l.lone = (j.grp IS NULL) LIMIT 1) IS DISTINCT FROM j.seq
			ORDER BY j.run_at, j.seq LIMIT n) y);
	END IF;
	RETURN (SELECT array_agg(y.id ORDER BY y.finished_at, y.seq) FROM (
		SELECT j.id, j.finished_at, j.seq FROM rota.job j WHERE j.queue = q.id AND j.state = p_state AND j.state IN (5, 6, 7) AND (p_grp IS NULL OR j.grp = p_grp)
		ORDER BY j.finished_at, j.seq LIMIT n) y);
END $$;

-- act does an act on a group: 1 pause, 2 resume, 3 hold, 4 release, 5 skip its head.
-- It gives 0 done, 1 no such group, 2 its line is empty, and 3 and the job when that
-- runs.
CREATE OR REPLACE FUNCTION rota.act(p_queue text, p_grp text, p_act integer, OUT verdict integer, OUT job text) LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	q rota.queue;
	l rota.lane;
	j rota.job;
	now bigint;
BEGIN
	IF p_act IN (1, 3) THEN
		PERFORM rota.queues_for(ARRAY[p_queue]);
	END IF;
	verdict := 1;
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	PERFORM rota.hurry();
	q := rota.revive(q);
	PERFORM pg_current_xact_id();
	l := rota.lock_lane(q, p_grp, p_act IN (1, 3));
	IF l.key IS NULL THEN
		RETURN;
	END IF;
	now := rota.us();
	verdict := 0;
	IF p_act IN (1, 3) THEN
		UPDATE rota.lane x SET paused = x.paused OR p_act = 1, held = x.held OR p_act = 3, due = CASE WHEN x.leased THEN x.due END
		WHERE x.queue = q.id AND x.key = p_grp AND NOT x.lone;
		RETURN;
	ELSIF p_act = 2 THEN
		l.paused := false;
	ELSIF p_act = 4 THEN
		l.held := false;
		l.held_by := NULL;
	ELSIF l.leased THEN
		verdict := 3;
		job := (rota.running_job(l)).id;
		RETURN;
	ELSE
		j := rota.head(q.id, p_grp, 0);
		IF j.seq IS NULL THEN
			verdict := 2;
			RETURN;
		END IF;
		j.prio := l.tier;
		PERFORM rota.finish(q, j, 7, now);
		PERFORM rota.event(q, j, 'cancelled', now, '', '');
		IF j.result IS NOT NULL THEN
			PERFORM rota.hint(q, 'f', j.id);
		END IF;
	END IF;
	PERFORM rota.head_changed(l, now);
END $$;
