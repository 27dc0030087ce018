-- Publishing inserts and does nothing else: jobs, an arrival for each group of the
-- batch, a lane for each job without a group. It reads no lane and waits for
-- nobody, so it may stand in anybody's transaction.
--
-- In a transaction of its own, which ends at once, it spares the arrivals of groups that
-- have a lane, which are most when a queue is busy. It locks the seat for that,
-- after the jobs are there: who is about to remove the lane waits for this, and looks at
-- the line once more. See vacate.

-- queues_for makes the queues that are not there.
CREATE OR REPLACE FUNCTION rota.queues_for(p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO rota.queue (name) SELECT DISTINCT x FROM unnest(p_names) x ORDER BY x ON CONFLICT (name) DO NOTHING;
	UPDATE rota.queue q SET alive = true WHERE q.name = ANY (p_names) AND NOT q.alive;
END $$;

-- publish stores a batch of jobs that ask for no deduplication. p_queues are the
-- names of the queues of the batch, p_q (null: all 1) which of them each job goes
-- to; the other arrays run in parallel and may be null as a whole. p_first marks
-- the first job of each group and every job with a delay. A batch is created at its
-- first place, so no job stands before the time it was created at.
--
-- It gives [now, first seq, idle, transaction id, then the number of each job whose id is taken]:
-- idle is 1 when a worker of one of the queues had nothing to do lately, and 2 when a
-- queue has never been made (then nothing was stored).
CREATE OR REPLACE FUNCTION rota.publish(p_queues text[], p_q integer[], p_id text[], p_payload bytea[], p_grp text[], p_first boolean[],
	p_kind text[], p_headers text[], p_prio smallint[], p_delay bigint[], p_run_at bigint[], p_max integer[], p_timeout bigint[], p_deadline bigint[],
	p_retention bigint[], p_on_failure smallint[], p_on_exhausted smallint[], p_scheduling smallint[], p_own boolean)
RETURNS bigint[] LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	v_now bigint;
	v_seq bigint;
	n integer := array_length(p_id, 1);
	m integer;
	v_ids integer[]; v_max integer[]; v_sched smallint[];
	v_known integer;
	v_idle integer := 0;
	v_until bigint;
	v_events boolean;
	v_taken bigint[] := '{}';
	v_dup boolean[]; -- which ids are taken; null for none
	v_lone boolean := p_grp IS NULL OR '' = ANY (p_grp);
	v_some boolean := '' <> ANY (p_grp);
	v_own boolean := p_own AND current_setting('transaction_isolation') = 'read committed';
BEGIN
	PERFORM pg_current_xact_id();
	SELECT array_agg(q.id), array_agg(q.max_attempts), array_agg(q.scheduling),
		count(q.id), max(q.idle_until), bool_or(q.event_ttl > 0)
	INTO v_ids, v_max, v_sched, v_known, v_until, v_events
	FROM unnest(p_queues) WITH ORDINALITY x(name, ord)
	LEFT JOIN LATERAL (SELECT * FROM rota.queue y WHERE y.name = x.name LIMIT 1) q ON true;
	IF v_known < array_length(p_queues, 1) THEN
		RETURN ARRAY[0, 0, 2, 0];
	END IF;
	v_seq := rota.take(n);
	v_now := rota.us();
	IF v_until > v_now THEN
		v_idle := 1;
	END IF;
	INSERT INTO rota.job (seq, place, run_at, created_at, aside, deadline, timeout, retention, queue, max_attempts, state, prio,
		on_failure, on_exhausted, scheduling, inline, id, grp, kind, payload, headers)
	SELECT v_seq + x.ord - 1, CASE WHEN a.side IS NULL THEN v_seq + x.ord - 1 ELSE 0 END, r.at, v_seq, a.side, x.deadline, x.timeout, x.retention,
		v_ids[coalesce(x.q, 1)], coalesce(x.max, v_max[coalesce(x.q, 1)]), CASE WHEN r.at > v_now THEN 1 ELSE 2 END, coalesce(x.prio, 0),
		x.on_failure, x.on_exhausted, x.scheduling, coalesce(x.grp, '') <> '' AND a.side IS NULL, x.id, nullif(x.grp, ''), coalesce(x.kind, ''), coalesce(x.payload, ''), x.headers::jsonb
	FROM unnest(p_q, p_id, p_payload, p_grp, p_kind, p_headers, p_prio, p_delay, p_run_at, p_max, p_timeout, p_deadline, p_retention,
		p_on_failure, p_on_exhausted, p_scheduling) WITH ORDINALITY
		AS x(q, id, payload, grp, kind, headers, prio, delay, run_at, max, timeout, deadline, retention, on_failure, on_exhausted, scheduling, ord),
	LATERAL (SELECT CASE WHEN greatest(v_now + x.delay, x.run_at) > v_now THEN greatest(v_now + x.delay, x.run_at) ELSE v_seq END AS at) r,
	LATERAL (SELECT CASE WHEN r.at > v_now AND x.grp <> '' AND coalesce(x.scheduling, v_sched[coalesce(x.q, 1)]) = 1 THEN r.at END AS side) a
	ON CONFLICT (queue, id) DO NOTHING;
	GET DIAGNOSTICS m = ROW_COUNT;
	IF m < n THEN
		SELECT array_agg(y.dup ORDER BY y.ord), array_agg(y.ord ORDER BY y.ord) FILTER (WHERE y.dup) INTO v_dup, v_taken
		FROM (SELECT x.ord, (SELECT j.seq FROM rota.job j WHERE j.queue = v_ids[coalesce(x.q, 1)] AND j.id = x.id LIMIT 1) IS DISTINCT FROM v_seq + x.ord - 1 AS dup
			FROM unnest(p_q, p_id) WITH ORDINALITY AS x(q, id, ord)) y;
	END IF;
	IF v_some THEN
		WITH seated AS MATERIALIZED (
			SELECT x.ord FROM unnest(p_q, p_grp, p_first) WITH ORDINALITY AS x(q, grp, first, ord),
			LATERAL (SELECT y.key FROM rota.seat y WHERE v_own AND y.queue = v_ids[coalesce(x.q, 1)] AND y.key = x.grp FOR UPDATE SKIP LOCKED) s
			WHERE x.first AND m = n
		)
		INSERT INTO rota.arrival (at, place, queue, tier, grp)
		SELECT v_seq, v_seq + x.ord - 1, v_ids[coalesce(x.q, 1)], CASE WHEN r.at > v_now THEN 5 ELSE coalesce(x.prio, 0) END, x.grp
		FROM unnest(p_q, p_grp, p_first, p_prio, p_delay, p_run_at, p_scheduling) WITH ORDINALITY AS x(q, grp, first, prio, delay, run_at, scheduling, ord),
		LATERAL (SELECT greatest(v_now + x.delay, x.run_at, v_now) AS at) r
		WHERE x.grp <> '' AND (CASE WHEN m = n THEN x.first ELSE NOT v_dup[x.ord] END)
			AND (coalesce(x.scheduling, v_sched[coalesce(x.q, 1)]) <> 1 OR r.at <= v_now)
			AND x.ord NOT IN (SELECT seated.ord FROM seated);
	END IF;
	IF v_lone THEN
		INSERT INTO rota.lane (due, born, queue, tier, lone, key)
		SELECT CASE WHEN greatest(v_now + x.delay, x.run_at) > v_now THEN greatest(v_now + x.delay, x.run_at) ELSE v_seq END, v_seq + x.ord - 1, v_ids[coalesce(x.q, 1)], coalesce(x.prio, 0), true, x.id
		FROM unnest(p_q, p_id, p_grp, p_prio, p_delay, p_run_at) WITH ORDINALITY AS x(q, id, grp, prio, delay, run_at, ord)
		WHERE coalesce(x.grp, '') = '' AND (m = n OR NOT v_dup[x.ord]);
	END IF;
	IF v_events THEN
		INSERT INTO rota.event (at, queue, attempt, kind, grp, job, jobkind)
		SELECT v_now, v_ids[coalesce(x.q, 1)], 0, 'enqueued', nullif(x.grp, ''), x.id, coalesce(x.kind, '')
		FROM unnest(p_q, p_id, p_grp, p_kind) WITH ORDINALITY AS x(q, id, grp, kind, ord)
		WHERE (m = n OR NOT v_dup[x.ord])
			AND (SELECT y.event_ttl FROM rota.queue y WHERE y.id = v_ids[coalesce(x.q, 1)] LIMIT 1) > 0
		ORDER BY x.ord;
	END IF;
	RETURN ARRAY[v_now, v_seq, v_idle, pg_current_xact_id()::text::bigint] || v_taken;
END $$;
