-- Publishing of jobs with a dedup key, to a topic, or all or nothing: one by one.

-- judge decides whether a job may be stored: 0 it may, 1 its id is taken, 2 its key
-- is taken, 3 the holder of the key is the answer, 4 the holder is to be replaced.
-- stale is the seq of the holder from which the key is to be taken over, 0 when it
-- is free.
CREATE OR REPLACE FUNCTION rota.judge(q rota.queue, p_id text, p_key text, p_conflict integer, now bigint,
	OUT verdict integer, OUT holder text, OUT stale bigint) LANGUAGE plpgsql AS $$
DECLARE
	d rota.dedup;
	j rota.job;
	s integer := 8;
BEGIN
	verdict := 0;
	stale := 0;
	IF EXISTS (SELECT 1 FROM rota.job x WHERE x.queue = q.id AND x.id = p_id) THEN
		verdict := 1;
		holder := p_id;
		RETURN;
	END IF;
	IF p_key IS NULL THEN
		RETURN;
	END IF;
	SELECT * INTO d FROM rota.dedup x WHERE x.queue = q.id AND x.key = p_key;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	SELECT * INTO j FROM rota.job x WHERE x.queue = q.id AND x.id = d.id AND x.seq = d.seq;
	IF FOUND THEN
		s := rota.state_of(j);
	END IF;
	IF d.until <= now OR d.states & (1 << s) = 0 OR (p_conflict = 2 AND s IN (4, 6, 7)) THEN
		stale := d.seq;
		RETURN;
	END IF;
	holder := d.id;
	stale := d.seq;
	verdict := CASE WHEN p_conflict = 1 THEN 3 WHEN p_conflict = 3 AND s IN (1, 2) THEN 4 ELSE 2 END;
END $$;

-- state_of is the state that readers see: running is a matter of the lane.
CREATE OR REPLACE FUNCTION rota.state_of(j rota.job) RETURNS integer LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF j.state < 5 AND EXISTS (SELECT 1 FROM rota.lane l WHERE l.queue = j.queue AND l.key = coalesce(j.grp, j.id) AND l.lone = (j.grp IS NULL) AND l.job = j.seq) THEN
		RETURN 3;
	END IF;
	RETURN j.state;
END $$;

-- take_key gives the key to a job, from the holder that judge saw; false when
-- somebody else was faster.
CREATE OR REPLACE FUNCTION rota.take_key(q integer, p_key text, p_id text, p_seq bigint, p_states integer, p_until bigint, p_stale bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO rota.dedup AS d (queue, key, id, seq, states, until) VALUES (q, p_key, p_id, p_seq, p_states, p_until)
	ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, seq = excluded.seq, states = excluded.states, until = excluded.until
	WHERE d.seq = p_stale;
	RETURN FOUND;
END $$;

-- enter gives a job that was just stored, or whose run time was replaced, its first
-- place. It stores the job.
CREATE OR REPLACE FUNCTION rota.enter(q rota.queue, j rota.job, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	j.state := CASE WHEN j.run_at > now THEN 1 ELSE 2 END;
	IF j.run_at > now AND j.grp IS NOT NULL AND coalesce(j.scheduling, q.scheduling) = 1 THEN
		j.aside := j.run_at;
		PERFORM rota.store_job(j);
		RETURN;
	END IF;
	PERFORM rota.join_line(q, j, j.seq, now, now);
END $$;

-- replace gives a holder that has not started new contents at its old place; false
-- when it has started, or was moved, since judge looked. What it makes due is due
-- from when the new jobs of the batch are: all enter at one time.
--
-- The transaction may stay open for as long as a program likes. So this locks the
-- job and no lane of a group: claims pass a job with a key whose lock they do not
-- get. A job that comes to stand in line is put there at once by a call of its own
-- transaction (p_join), else by the next claim, like one that stands aside. When the lock
-- turns out to be that of a job that runs, which must not wait for us, RT004 undoes the batch.
CREATE OR REPLACE FUNCTION rota.replace(p_join boolean, q rota.queue, p_holder text, p_seq bigint, n rota.job) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	now CONSTANT bigint := n.created_at;
	j rota.job;
	moves boolean; -- it is alone, and its lane gets another time
BEGIN
	SELECT * INTO j FROM rota.job x WHERE x.queue = q.id AND x.id = p_holder AND x.seq = p_seq;
	IF NOT FOUND OR j.state > 2 THEN
		RETURN false;
	END IF;
	moves := j.grp IS NULL AND j.state = 1;
	IF moves THEN
		PERFORM 1 FROM rota.lane x WHERE x.queue = q.id AND x.key = j.id AND x.lone FOR UPDATE;
	END IF;
	SELECT * INTO j FROM rota.job x WHERE x.queue = q.id AND x.id = p_holder AND x.seq = p_seq FOR UPDATE;
	IF NOT FOUND OR j.state > 2 OR rota.state_of(j) = 3 OR moves <> (j.grp IS NULL AND j.state = 1) THEN
		RAISE SQLSTATE 'RT004';
	END IF;
	IF j.aside IS NULL AND NOT moves AND current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM rota.unclaimed(q, coalesce(j.grp, j.id), j.grp IS NULL);
	END IF;
	j.kind := n.kind;
	j.timeout := n.timeout;
	j.deadline := n.deadline;
	j.payload := n.payload;
	j.headers := n.headers;
	IF j.aside IS NOT NULL THEN
		j.run_at := n.run_at;
		IF p_join THEN
			j.aside := NULL;
			PERFORM rota.enter(q, j, now);
			RETURN true;
		END IF;
		j.state := CASE WHEN j.run_at > now THEN 1 ELSE 2 END;
		j.aside := j.run_at;
		IF j.run_at <= now OR coalesce(j.scheduling, q.scheduling) <> 1 THEN
			j.aside := now;
			j.place := j.seq;
		END IF;
	ELSIF moves THEN
		j.run_at := n.run_at;
		j.state := CASE WHEN j.run_at > now THEN 1 ELSE 2 END;
		UPDATE rota.lane x SET due = greatest(now, j.run_at) WHERE x.queue = q.id AND x.key = j.id AND x.lone;
	END IF;
	PERFORM rota.store_job(j);
	RETURN true;
END $$;

-- unclaimed makes sure, in a transaction that does not see what has happened since its
-- snapshot, that no claim has come to the lane since: else it raises 40001. It keeps no lock.
CREATE OR REPLACE FUNCTION rota.unclaimed(q rota.queue, p_key text, p_lone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 FROM rota.lane x WHERE x.queue = q.id AND x.key = p_key AND x.lone = p_lone;
	IF FOUND THEN
		PERFORM 1 FROM rota.lane x WHERE x.queue = q.id AND x.key = p_key AND x.lone = p_lone FOR UPDATE SKIP LOCKED;
	ELSIF NOT p_lone THEN
		INSERT INTO rota.seat (queue, key) VALUES (q.id, p_key) ON CONFLICT (queue, key) DO NOTHING;
	END IF;
	IF NOT FOUND THEN
		RAISE SQLSTATE '40001' USING MESSAGE = 'the group is busy';
	END IF;
	RAISE SQLSTATE 'RT005';
EXCEPTION WHEN SQLSTATE 'RT005' THEN
	RETURN;
END $$;

-- store inserts a job that nothing speaks against, and takes its key; false when
-- another transaction was faster.
CREATE OR REPLACE FUNCTION rota.store(q rota.queue, j rota.job, p_stale bigint, p_until bigint, now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	waits boolean := j.run_at > now;
BEGIN
	j.queue := q.id;
	j.attempt := 0;
	j.cancel := false;
	j.max_attempts := coalesce(j.max_attempts, q.max_attempts);
	j.state := CASE WHEN waits THEN 1 ELSE 2 END;
	j.place := j.seq;
	j.inline := j.grp IS NOT NULL;
	IF waits AND j.grp IS NOT NULL AND coalesce(j.scheduling, q.scheduling) = 1 THEN
		j.aside := j.run_at;
		j.place := 0;
		j.inline := false;
	END IF;
	INSERT INTO rota.job SELECT (j).* ON CONFLICT (queue, id) DO NOTHING;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	IF j.dedup_key IS NOT NULL AND NOT rota.take_key(q.id, j.dedup_key, j.id, j.seq, j.dedup_while, p_until, p_stale) THEN
		DELETE FROM rota.job x WHERE x.queue = q.id AND x.id = j.id;
		RETURN false;
	END IF;
	IF j.grp IS NULL THEN
		INSERT INTO rota.lane (due, born, queue, tier, lone, key) VALUES (j.run_at, j.seq, q.id, j.prio, true, j.id);
	ELSIF j.inline THEN
		INSERT INTO rota.arrival (at, place, queue, tier, grp) VALUES (j.created_at, j.seq, q.id, CASE WHEN waits THEN 5 ELSE j.prio END, j.grp);
	END IF;
	PERFORM rota.event(q, j, 'enqueued', now, '', '');
	RETURN true;
END $$;

-- publish_one stores a job in all of the queues, or refuses it in all of them.
-- queue is the one that speaks against it, id the job there.
CREATE OR REPLACE FUNCTION rota.publish_one(p_make boolean, p_queues text[], j rota.job, p_conflict integer, p_until bigint, now bigint,
	OUT verdict integer, OUT id text, OUT queue text, OUT seq bigint) LANGUAGE plpgsql AS $$
DECLARE
	qs rota.queue[];
	q rota.queue;
	stale bigint[] := '{}';
	v record;
	i integer;
BEGIN
	SELECT array_agg(x ORDER BY y.ord) INTO qs FROM unnest(p_queues) WITH ORDINALITY y(name, ord),
		LATERAL (SELECT * FROM rota.queue z WHERE z.name = y.name LIMIT 1) x;
	IF coalesce(array_length(qs, 1), 0) < array_length(p_queues, 1) THEN
		IF NOT p_make THEN
			RAISE SQLSTATE 'RT003'; -- a binding went since the caller looked
		END IF;
		PERFORM rota.queues_for(p_queues);
		SELECT * INTO verdict, id, queue, seq FROM rota.publish_one(false, p_queues, j, p_conflict, p_until, now);
		RETURN;
	END IF;
	FOREACH q IN ARRAY qs LOOP
		SELECT * INTO v FROM rota.judge(q, j.id, j.dedup_key, p_conflict, now);
		IF v.verdict = 4 AND NOT rota.replace(p_make, q, v.holder, v.stale, j) THEN
			v.verdict := -1;
		END IF;
		IF v.verdict <> 0 THEN
			verdict := v.verdict;
			id := v.holder;
			queue := q.name;
			RETURN;
		END IF;
		stale := stale || v.stale;
	END LOOP;
	verdict := 0;
	id := j.id;
	FOR i IN 1..array_length(qs, 1) LOOP
		seq := j.seq;
		IF NOT rota.store(qs[i], j, stale[i], p_until, now) THEN
			IF i > 1 THEN -- undo what was stored in the queues before, by the caller's block
				RAISE SQLSTATE 'RT001';
			END IF;
			verdict := -1;
			RETURN;
		END IF;
	END LOOP;
END $$;

-- publish_rules publishes jobs one by one, in order. p_make says that its transaction ends
-- with it, so that it may make queues and lock groups. A verdict is one of judge's, or
-- 5 nobody is bound to the topic, 6 not published for another one's sake. The last
-- row (o_ord 0) has the transaction's id in o_seq and whether a worker is idle in o_verdict.
CREATE OR REPLACE FUNCTION rota.publish_rules(p_make boolean, p_all boolean, p_queue text[], p_topic text[], p_id text[], p_payload bytea[], p_grp text[],
	p_kind text[], p_headers text[], p_prio smallint[], p_delay bigint[], p_run_at bigint[], p_max integer[], p_timeout bigint[], p_deadline bigint[],
	p_retention bigint[], p_on_failure smallint[], p_on_exhausted smallint[], p_scheduling smallint[],
	p_key text[], p_states smallint[], p_window bigint[], p_conflict smallint[])
RETURNS TABLE (o_ord integer, o_verdict integer, o_id text, o_queue text, o_seq bigint, o_queues text[]) LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	r record;
	j rota.job;
	v_seq bigint; -- of the first job; a copy in another queue has the same
	v_now bigint;
	v record;
	n integer := array_length(p_id, 1);
	c_verdict integer[] := array_fill(6, ARRAY[n]);
	c_id text[] := array_fill(NULL::text, ARRAY[n]);
	c_queue text[] := c_id;
	c_queues text[] := c_id;
	c_seq bigint[] := array_fill(0::bigint, ARRAY[n]);
	v_queues text[];
	v_again boolean := true;
BEGIN
	PERFORM pg_current_xact_id();
	IF p_make THEN
		PERFORM rota.hurry();
	END IF;
	v_seq := rota.take(n);
	v_now := rota.us(); -- so a job that joins later stands behind this batch
	WHILE v_again LOOP
		v_again := false;
		BEGIN
			FOR r IN SELECT * FROM unnest(p_queue, p_topic, p_id, p_payload, p_grp, p_kind, p_headers, p_prio, p_delay, p_run_at, p_max, p_timeout, p_deadline,
				p_retention, p_on_failure, p_on_exhausted, p_scheduling, p_key, p_states, p_window, p_conflict) WITH ORDINALITY
				AS x(queue, topic, id, payload, grp, kind, headers, prio, delay, run_at, max, timeout, deadline, retention, on_failure, on_exhausted, scheduling,
					key, states, win, conflict, ord)
			LOOP
				v_queues := NULL;
				IF r.topic <> '' THEN
					SELECT array_agg(q.name ORDER BY q.name) INTO v_queues FROM rota.binding b JOIN rota.queue q ON q.id = b.queue WHERE b.topic = r.topic;
				END IF;
				IF v_queues IS NULL AND r.queue <> '' THEN
					v_queues := ARRAY[r.queue];
				END IF;
				IF v_queues IS NULL THEN
					c_verdict[r.ord] := 5;
					CONTINUE;
				END IF;
				j := NULL;
				j.seq := v_seq + r.ord - 1;
				j.id := r.id; j.payload := coalesce(r.payload, ''); j.grp := nullif(r.grp, ''); j.kind := coalesce(r.kind, ''); j.headers := r.headers::jsonb;
				j.prio := coalesce(r.prio, 0); j.created_at := v_seq; -- as publish does it
				j.run_at := greatest(v_now + r.delay, r.run_at);
				IF j.run_at > v_now IS NOT TRUE THEN
					j.run_at := v_seq;
				END IF;
				j.max_attempts := r.max; j.timeout := r.timeout; j.deadline := r.deadline; j.retention := r.retention;
				j.on_failure := r.on_failure; j.on_exhausted := r.on_exhausted; j.scheduling := r.scheduling;
				j.dedup_key := nullif(r.key, ''); j.dedup_while := CASE WHEN r.key <> '' THEN r.states END;
				LOOP
					IF array_length(v_queues, 1) = 1 THEN
						SELECT * INTO v FROM rota.publish_one(p_make, v_queues, j, coalesce(r.conflict, 0), v_now + nullif(r.win, 0), v_now);
					ELSE
						BEGIN
							SELECT * INTO v FROM rota.publish_one(p_make, v_queues, j, coalesce(r.conflict, 0), v_now + nullif(r.win, 0), v_now);
						EXCEPTION WHEN SQLSTATE 'RT001' THEN
							CONTINUE;
						END;
					END IF;
					EXIT WHEN v.verdict >= 0;
				END LOOP;
				c_verdict[r.ord] := v.verdict;
				c_id[r.ord] := v.id;
				c_queue[r.ord] := v.queue;
				c_queues[r.ord] := array_to_string(v_queues, chr(10));
				c_seq[r.ord] := v.seq;
			END LOOP;
			IF p_all AND c_verdict && ARRAY[1, 2, 5] THEN
				RAISE SQLSTATE 'RT002';
			END IF;
		EXCEPTION WHEN SQLSTATE 'RT002' THEN
			FOR i IN 1..n LOOP
				IF c_verdict[i] NOT IN (1, 2, 5) THEN
					c_verdict[i] := 6;
				END IF;
			END LOOP;
		WHEN SQLSTATE 'RT004' THEN -- nobody waits for this any more
			IF current_setting('transaction_isolation') <> 'read committed' THEN
				RAISE SQLSTATE '40001' USING MESSAGE = 'the job to replace has changed';
			END IF;
			v_again := true;
		END;
	END LOOP;
	FOR i IN 1..n LOOP
		o_ord := i; o_verdict := c_verdict[i]; o_id := c_id[i]; o_queue := c_queue[i]; o_seq := c_seq[i];
		o_queues := string_to_array(c_queues[i], chr(10));
		RETURN NEXT;
	END LOOP;
	o_ord := 0; o_seq := pg_current_xact_id()::text::bigint; o_id := NULL; o_queue := NULL; o_queues := NULL;
	o_verdict := (SELECT count(*) FROM rota.queue q WHERE q.name IN (SELECT unnest(string_to_array(x, chr(10))) FROM unnest(c_queues) x)
		AND q.idle_until > v_now);
	RETURN NEXT;
END $$;
