-- Acts on queues as a whole.

CREATE OR REPLACE FUNCTION rota.configure(p_queue text, p_config text, p_head_start bigint, p_on_failure integer, p_on_exhausted integer, p_scheduling integer,
	p_max integer, p_completed bigint, p_dead bigint, p_cancelled bigint, p_result bigint, p_events bigint) RETURNS void LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	q rota.queue;
BEGIN
	PERFORM rota.hurry();
	PERFORM rota.queues_for(ARRAY[p_queue]);
	PERFORM rota.rewound();
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue;
	IF q.head_start <> p_head_start THEN -- groups that wait already keep the turn they have
		PERFORM rota.lock_lane(q, x.grp, false) FROM (SELECT DISTINCT a.grp FROM rota.arrival a WHERE a.queue = q.id
			AND (SELECT s.key FROM rota.seat s WHERE s.queue = a.queue AND s.key = a.grp LIMIT 1) IS NULL ORDER BY a.grp) x;
	END IF;
	UPDATE rota.queue x SET config = p_config, head_start = p_head_start, on_failure = p_on_failure, on_exhausted = p_on_exhausted,
		scheduling = p_scheduling, max_attempts = p_max, keep_completed = p_completed, keep_dead = p_dead, keep_cancelled = p_cancelled,
		keep_result = p_result, event_ttl = p_events
	WHERE x.name = p_queue;
END $$;

CREATE OR REPLACE FUNCTION rota.unfinished(p_queue integer) RETURNS bigint LANGUAGE sql STABLE AS $$
	SELECT (SELECT count(*) FROM rota.job j WHERE j.queue = p_queue AND j.state = 2)
		+ (SELECT count(*) FROM rota.job j WHERE j.queue = p_queue AND j.state = ANY (ARRAY[1, 4]) AND j.state IN (1, 4))
$$;

-- delete_queue gives -1 when there is no such queue, the number of unfinished jobs
-- when there are some and force is not set, else 0. It takes arrivals first, then
-- lanes with their seats, then jobs.
--
-- Publishes and claims go on meanwhile, so each statement looks anew: what one locks the next
-- finds as it is then, jobs that came after the first look keep the queue from being deleted
-- unless force is set, and lanes that were made since and lost their jobs go in the end.
CREATE OR REPLACE FUNCTION rota.delete_queue(p_queue text, p_force boolean) RETURNS bigint LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	q rota.queue;
	l rota.lane;
	h rota.job;
	n bigint;
BEGIN
	PERFORM rota.hurry();
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue FOR UPDATE;
	IF NOT FOUND OR NOT rota.exists_queue(q) THEN
		RETURN -1;
	END IF;
	IF NOT p_force THEN
		n := rota.unfinished(q.id);
		IF n > 0 THEN
			RETURN n;
		END IF;
	END IF;
	BEGIN
		DELETE FROM rota.arrival x WHERE x.queue = q.id;
		PERFORM 1 FROM rota.lane x WHERE x.queue = q.id ORDER BY x.key FOR UPDATE;
		WITH gone AS (
			DELETE FROM rota.lane x WHERE x.queue = q.id RETURNING x.key, x.lone
		)
		DELETE FROM rota.seat x USING gone WHERE x.queue = q.id AND x.key = gone.key AND NOT gone.lone;
		WITH gone AS (
			DELETE FROM rota.job x WHERE x.queue = q.id RETURNING x.state
		)
		SELECT count(*) FILTER (WHERE gone.state < 5) INTO n FROM gone;
		IF n > 0 AND NOT p_force THEN
			RAISE SQLSTATE 'RT005';
		END IF;
	EXCEPTION WHEN SQLSTATE 'RT005' THEN
		RETURN n;
	END;
	FOR l IN SELECT * FROM rota.lane x WHERE x.queue = q.id ORDER BY x.key FOR UPDATE LOOP
		IF l.leased THEN
			h := rota.running_job(l);
			CONTINUE WHEN h.seq IS NOT NULL;
			l.leased := false;
		END IF;
		PERFORM rota.head_changed(l, rota.us());
	END LOOP;
	-- A publish may have taken a key over that it has found stale: what comes after the lock sees its job.
	PERFORM 1 FROM rota.dedup x WHERE x.queue = q.id ORDER BY x.key FOR UPDATE;
	DELETE FROM rota.dedup x WHERE x.queue = q.id AND (x.states & (1 << 8) = 0 OR x.until IS NULL OR x.until <= rota.us())
		AND (SELECT j.seq FROM rota.job j WHERE j.queue = x.queue AND j.id = x.id LIMIT 1) IS DISTINCT FROM x.seq;
	DELETE FROM rota.tally x WHERE x.queue = q.id;
	DELETE FROM rota.event x WHERE x.queue = q.id;
	DELETE FROM rota.binding x WHERE x.queue = q.id;
	UPDATE rota.queue x SET alive = false, paused = false, on_failure = DEFAULT, on_exhausted = DEFAULT, scheduling = DEFAULT, max_attempts = DEFAULT,
		head_start = DEFAULT, keep_completed = DEFAULT, keep_dead = DEFAULT, keep_cancelled = DEFAULT, keep_result = DEFAULT, event_ttl = DEFAULT,
		config = DEFAULT WHERE x.id = q.id;
	PERFORM rota.rewound();
	RETURN 0;
END $$;

-- update_job patches a job that is in one of the states; it gives 0 done, 1 no such
-- job, 16 + state otherwise.
CREATE OR REPLACE FUNCTION rota.update_job(p_queue text, p_id text, p_states integer, p_payload bytea, p_set text, p_drop text, p_result bytea)
RETURNS integer LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	j rota.job;
	was rota.job;
	s integer;
	q rota.queue;
	v_q integer;
BEGIN
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue;
	v_q := q.id;
	PERFORM rota.hurry();
	LOOP
		SELECT * INTO was FROM rota.job x WHERE x.queue = v_q AND x.id = p_id;
		IF NOT FOUND THEN
			RETURN 1;
		END IF;
		IF was.state < 5 AND was.grp IS NOT NULL THEN -- so that no claim takes it meanwhile
			PERFORM rota.lock_lane(q, was.grp, false);
		ELSIF was.state < 5 THEN
			PERFORM 1 FROM rota.lane l WHERE l.queue = v_q AND l.key = was.id AND l.lone FOR UPDATE;
		END IF;
		SELECT * INTO j FROM rota.job x WHERE x.queue = v_q AND x.id = p_id FOR UPDATE;
		EXIT WHEN j.seq = was.seq AND j.inline = was.inline AND (j.state < 5) = (was.state < 5);
	END LOOP;
	s := rota.state_of(j);
	IF p_states <> 0 AND p_states & (1 << s) = 0 THEN
		RETURN 16 + s;
	END IF;
	PERFORM rota.store_job(rota.patched(j, p_payload, p_set::jsonb, p_drop::jsonb, p_result));
	RETURN 0;
END $$;

-- set_paused tells whether it changed anything; null when there is no such queue.
CREATE OR REPLACE FUNCTION rota.set_paused(p_queue text, p_paused boolean) RETURNS boolean LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	q rota.queue;
BEGIN
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue FOR UPDATE;
	IF NOT FOUND OR NOT rota.exists_queue(q) THEN
		RETURN NULL;
	END IF;
	UPDATE rota.queue x SET paused = p_paused, alive = true WHERE x.id = q.id;
	RETURN q.paused <> p_paused;
END $$;

CREATE OR REPLACE FUNCTION rota.bind(p_topic text, p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM rota.queues_for(ARRAY[p_queue]);
	INSERT INTO rota.binding (topic, queue, created_at) SELECT p_topic, q.id, rota.us() FROM rota.queue q WHERE q.name = p_queue
	ON CONFLICT (topic, queue) DO NOTHING;
END $$;
