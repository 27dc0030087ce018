-- settle ends leases. The arrays run in parallel, those after p_salt may be null as
-- a whole: then every outcome is a completion and nothing is patched. It gives the
-- state of each job, 0 for a lost lease; plus 16 when a job with a result has
-- finished. Two more numbers follow: 1 when a worker had nothing to do lately, and
-- the transaction's id.
--
-- What a completion does when nothing asks for more is done for all of them at
-- once; the rest one by one by settle_one.
--
-- p_tid says where each lane was as it was claimed. That is a hint, because looking
-- for it by key passes all its versions that an old snapshot keeps; fence and salt
-- decide. An extended lease has moved, and is found by key.
--
-- A lane may be locked by the transaction of a program that settles the same lease, for
-- as long as that likes. Nothing waits for it while it holds other lanes: p_wait is
-- false first, and then a lease that can not be locked gets the state -1; the caller asks for
-- these again with p_wait.
CREATE OR REPLACE FUNCTION rota.settle(p_wait boolean, p_queue text, p_grp text[], p_id text[], p_fence bigint[], p_salt bigint[], p_tid tid[],
	p_action smallint[], p_delay bigint[], p_error text[], p_trace text[],
	p_payload bytea[], p_set text[], p_drop text[], p_result bytea[])
RETURNS bigint[] LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	q rota.queue;
	v_q integer;
	v_now bigint;
	v_states bigint[] := array_fill(0::bigint, ARRAY[array_length(p_id, 1) + 2]);
	v_fresh boolean := current_setting('transaction_isolation') = 'read committed';
	v_tid tid[] := p_tid;
	-- plain completions (d), others (a), lanes whose lines seem to be empty (g)
	d_ord integer[]; d_tid tid[]; d_key text[]; d_lone boolean[]; d_floor bigint[]; d_kept boolean[]; d_jtid tid[];
	a_ord integer[]; a_tid tid[];
	g_tid tid[]; g_key text[]; g_floor bigint[];
	i integer;
	n integer;
	v_lane rota.lane;
BEGIN
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue;
	IF NOT FOUND THEN
		RETURN v_states;
	END IF;
	v_q := q.id;
	IF NOT p_wait AND NOT q.alive THEN
		q := rota.revive(q);
	END IF;
	PERFORM pg_current_xact_id();
	IF p_wait THEN
		v_tid := rota.lane_tids(true, v_q, p_grp, p_id, p_fence, p_salt, v_tid);
	END IF;
	-- Lock in the order of keys, so that two settles do not wait for each other. The
	-- job of a locked lane stays where it is.
	FOR pass IN 1..2 LOOP
		SELECT array_agg(a.ord ORDER BY a.ord) FILTER (WHERE NOT a.plain), array_agg(a.tid ORDER BY a.ord) FILTER (WHERE NOT a.plain),
			array_agg(a.ord) FILTER (WHERE a.plain), array_agg(a.tid) FILTER (WHERE a.plain),
			array_agg(a.key) FILTER (WHERE a.plain), array_agg(a.lone) FILTER (WHERE a.plain), array_agg(a.floor) FILTER (WHERE a.plain),
			array_agg(a.kept) FILTER (WHERE a.plain), array_agg(a.jtid) FILTER (WHERE a.plain), count(*)
		INTO a_ord, a_tid, d_ord, d_tid, d_key, d_lone, d_floor, d_kept, d_jtid, n
		FROM (SELECT l.tid, x.ord, l.key, l.lone, l.floor, l.paused OR l.held AS kept, j.tid AS jtid, j.plain AND (p_action IS NULL OR (p_action[x.ord] = 1
				AND p_payload[x.ord] IS NULL AND p_set[x.ord] IS NULL AND p_drop[x.ord] IS NULL AND p_result[x.ord] IS NULL)) AS plain
			FROM (SELECT z.grp, z.id, z.fence, z.salt, z.tid, z.ord::integer AS ord FROM unnest(p_grp, p_id, p_fence, p_salt, v_tid) WITH ORDINALITY AS z(grp, id, fence, salt, tid, ord)
				ORDER BY coalesce(nullif(z.grp, ''), z.id) COLLATE "C") x,
			LATERAL (SELECT z.ctid AS tid, z.* FROM rota.lane z WHERE z.ctid = x.tid AND z.queue = v_q AND z.key = coalesce(nullif(x.grp, ''), x.id) AND z.lone = (x.grp = '')
				AND z.leased AND z.fence = x.fence AND z.salt = x.salt FOR UPDATE SKIP LOCKED) l,
			LATERAL (SELECT z.ctid AS tid, z.result IS NULL AND z.dedup_key IS NULL AND coalesce(z.retention, q.keep_completed) <= 0 AND q.event_ttl = 0 AS plain
				FROM rota.job z WHERE z.queue = v_q AND z.id = x.id AND z.seq = l.job LIMIT 1) j) a;
		EXIT WHEN n = array_length(p_id, 1) OR p_wait;
		IF pass = 2 THEN
			FOR i IN SELECT x.ord FROM unnest(v_tid) WITH ORDINALITY AS x(tid, ord) WHERE x.tid = rota.busy() LOOP
				v_states[i] := -1;
			END LOOP;
			EXIT;
		END IF;
		v_tid := rota.lane_tids(false, v_q, p_grp, p_id, p_fence, p_salt, v_tid);
	END LOOP;

	v_now := rota.us();
	v_states[array_length(p_id, 1) + 1] := (q.idle_until > v_now)::integer;
	v_states[array_length(p_id, 1) + 2] := pg_current_xact_id()::text::bigint;
	IF d_ord IS NOT NULL THEN
		DELETE FROM rota.job j WHERE j.ctid = ANY (d_jtid);
		GET DIAGNOSTICS i = ROW_COUNT;
		IF i < array_length(d_ord, 1) THEN -- one was changed before its lane was locked
			RAISE SQLSTATE '40001';
		END IF;
		-- In a transaction whose snapshot is older than the lock, nobody knows what
		-- stands in line: then the next claim looks.
		WITH h AS MATERIALIZED (
			SELECT x.tid, x.key, x.lone, x.floor, x.kept, CASE WHEN v_fresh OR x.lone THEN j.run_at ELSE v_now END AS run_at
			FROM unnest(d_tid, d_key, d_lone, d_floor, d_kept) AS x(tid, key, lone, floor, kept)
			LEFT JOIN LATERAL (SELECT y.run_at FROM rota.job y WHERE NOT x.lone AND y.queue = v_q AND y.grp = x.key AND y.inline AND y.place >= x.floor
				ORDER BY y.place, y.seq LIMIT 1) j ON true
		), gone AS (
			DELETE FROM rota.lane x USING h WHERE x.ctid = h.tid AND h.lone
		), freed AS (
			UPDATE rota.lane x SET leased = false, salt = NULL, job = NULL, attempt = NULL, owner = NULL, claimed_at = NULL,
				due = CASE WHEN h.kept THEN NULL ELSE greatest(v_now, h.run_at) END,
				tier = CASE WHEN h.run_at IS NULL THEN -1 ELSE x.tier END
			FROM h WHERE x.ctid = h.tid AND NOT h.lone AND (h.kept OR h.run_at IS NOT NULL)
		)
		SELECT array_agg(h.tid), array_agg(h.key), array_agg(h.floor) INTO g_tid, g_key, g_floor
		FROM h WHERE h.run_at IS NULL AND NOT (h.lone OR h.kept);
		IF g_tid IS NOT NULL THEN
			PERFORM rota.vacate(v_q, g_tid, g_key, g_floor, true, v_now);
		END IF;
		PERFORM rota.add_tally(v_q, v_now, array_length(d_ord, 1), 0, 0, 0);
		FOREACH i IN ARRAY d_ord LOOP
			v_states[i] := 8;
		END LOOP;
	END IF;

	IF a_ord IS NOT NULL THEN
		FOR k IN 1..array_length(a_ord, 1) LOOP
			i := a_ord[k];
			SELECT * INTO v_lane FROM rota.lane x WHERE x.ctid = a_tid[k];
			v_states[i] := rota.settle_one(q, v_lane, a_tid[k], p_id[i], coalesce(p_action[i], 1), coalesce(p_delay[i], 0), coalesce(p_error[i], ''), coalesce(p_trace[i], ''),
				p_payload[i], p_set[i]::jsonb, p_drop[i]::jsonb, p_result[i], v_fresh, v_now);
		END LOOP;
	END IF;
	RETURN v_states;
END $$;

-- patched applies a patch to a job that the caller stores.
CREATE OR REPLACE FUNCTION rota.patched(j rota.job, p_payload bytea, p_set jsonb, p_drop jsonb, p_result bytea) RETURNS rota.job LANGUAGE plpgsql AS $$
BEGIN
	j.payload := coalesce(p_payload, j.payload);
	j.result := coalesce(p_result, j.result);
	IF p_set IS NOT NULL THEN
		j.headers := coalesce(j.headers, '{}') || p_set;
	END IF;
	IF p_drop IS NOT NULL AND j.headers IS NOT NULL THEN
		j.headers := j.headers - ARRAY(SELECT jsonb_array_elements_text(p_drop));
	END IF;
	RETURN j;
END $$;

-- settle_one ends the lease of a lane at t that the caller has locked, in any way
-- there is.
CREATE OR REPLACE FUNCTION rota.settle_one(q rota.queue, l rota.lane, t tid, p_id text, p_action integer, p_delay bigint, p_error text, p_trace text,
	p_payload bytea, p_set jsonb, p_drop jsonb, p_result bytea, p_fresh boolean, now bigint)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	j rota.job;
	action integer := p_action;
	failed boolean;
	s integer;
	waiting integer;
	at bigint;
BEGIN
	SELECT * INTO j FROM rota.job x WHERE x.queue = q.id AND x.id = p_id AND x.seq = l.job;
	IF NOT FOUND THEN
		RETURN 0;
	END IF;
	j := rota.patched(j, p_payload, p_set, p_drop, p_result);
	j.attempt := l.attempt;
	j.claimed_at := l.claimed_at;
	j.prio := l.tier;
	IF j.cancel AND action NOT IN (1, 5) THEN
		action := 6;
	END IF;
	failed := action IN (2, 5);
	IF failed OR (p_error <> '' AND action IN (4, 6)) THEN
		j.failures := rota.fail(j, now, p_error, p_trace, l.owner);
	END IF;
	IF failed THEN
		PERFORM rota.add_tally(q.id, now, 0, 1, 0, 0);
	END IF;
	IF action = 1 THEN
		s := rota.finish(q, j, 5, now);
		PERFORM rota.event(q, j, 'completed', now, '', l.owner);
	ELSIF action = 6 THEN
		s := rota.finish(q, j, 7, now);
		PERFORM rota.event(q, j, 'cancelled', now, p_error, l.owner);
	ELSIF action = 5 OR (action = 2 AND rota.exhausted(j)) THEN
		s := rota.die(q, j, now, p_error, l.owner);
		IF rota.holds(q, j) THEN
			l.held := true;
			l.held_by := j.id;
		END IF;
	ELSE
		waiting := CASE action WHEN 2 THEN 4 ELSE 1 END;
		IF action <> 2 THEN
			j.attempt := j.attempt - 1;
		END IF;
		IF action = 3 THEN
			p_delay := 0;
		END IF;
		j.run_at := now + p_delay;
		s := CASE WHEN p_delay > 0 THEN waiting ELSE 2 END;
		j.state := s;
		IF p_delay > 0 AND j.grp IS NOT NULL AND coalesce(j.on_failure, q.on_failure) = 2 THEN
			j.inline := false;
			j.aside := j.run_at;
		END IF;
		PERFORM rota.store_job(j);
		PERFORM rota.event(q, j, CASE action WHEN 2 THEN 'retried' ELSE 'released' END, now, p_error, l.owner);
	END IF;
	IF l.lone THEN
		at := CASE WHEN s < 5 THEN j.run_at END;
	ELSIF p_fresh THEN
		at := (rota.head(q.id, l.key, l.floor)).run_at;
	ELSE
		at := now;
	END IF;
	PERFORM rota.free_lane(l, t, greatest(at, CASE WHEN at IS NOT NULL THEN now END));
	RETURN s + CASE WHEN (s >= 5) AND j.result IS NOT NULL THEN 16 ELSE 0 END;
END $$;

-- busy stands for a lane that lives and is locked by another transaction.
CREATE OR REPLACE FUNCTION rota.busy() RETURNS tid LANGUAGE sql IMMUTABLE AS $$ SELECT '(4294967295,0)'::tid $$;

-- lane_tids locks the lanes of leases that are still the holders', and gives where
-- each is; null for a lost one. p_tid are hints. It does not wait for locks unless
-- told to, and gives busy instead.
CREATE OR REPLACE FUNCTION rota.lane_tids(p_wait boolean, p_queue integer, p_grp text[], p_id text[], p_fence bigint[], p_salt bigint[], p_tid tid[]) RETURNS tid[] LANGUAGE plpgsql AS $$
DECLARE
	tids tid[] := array_fill(NULL::tid, ARRAY[array_length(p_id, 1)]);
	missing boolean[] := array_fill(true, ARRAY[array_length(p_id, 1)]);
	n integer := 0;
	t tid;
	r record;
BEGIN
	FOR r IN
		SELECT x.ord, l.tid FROM (SELECT z.* FROM unnest(p_grp, p_id, p_fence, p_salt, p_tid) WITH ORDINALITY AS z(grp, id, fence, salt, tid, ord)
			ORDER BY coalesce(nullif(z.grp, ''), z.id) COLLATE "C") x,
		LATERAL (SELECT z.ctid AS tid FROM rota.lane z WHERE z.ctid = x.tid AND z.queue = p_queue AND z.key = coalesce(nullif(x.grp, ''), x.id) AND z.lone = (x.grp = '')
			AND z.leased AND z.fence = x.fence AND z.salt = x.salt FOR UPDATE SKIP LOCKED) l
	LOOP
		tids[r.ord] := r.tid;
		missing[r.ord] := false;
		n := n + 1;
	END LOOP;
	IF n = array_length(p_id, 1) THEN
		RETURN tids;
	END IF;
	FOR r IN
		SELECT x.ord, l.tid FROM (SELECT z.* FROM unnest(p_grp, p_id, p_fence, p_salt, missing) WITH ORDINALITY AS z(grp, id, fence, salt, missing, ord)
			WHERE z.missing AND z.fence >= 0 ORDER BY coalesce(nullif(z.grp, ''), z.id) COLLATE "C") x,
		LATERAL (SELECT z.ctid AS tid FROM rota.lane z WHERE z.queue = p_queue AND z.key = coalesce(nullif(x.grp, ''), x.id) AND z.lone = (x.grp = '')
			AND z.leased AND z.fence = x.fence AND z.salt = x.salt FOR UPDATE SKIP LOCKED) l
	LOOP
		tids[r.ord] := r.tid;
		missing[r.ord] := false;
	END LOOP;
	FOR r IN
		SELECT x.ord, x.grp, x.id, x.fence, x.salt FROM (SELECT z.* FROM unnest(p_grp, p_id, p_fence, p_salt, missing) WITH ORDINALITY AS z(grp, id, fence, salt, missing, ord)
			WHERE z.missing AND z.fence >= 0 ORDER BY coalesce(nullif(z.grp, ''), z.id) COLLATE "C") x,
		LATERAL (SELECT z.fence FROM rota.lane z WHERE z.queue = p_queue AND z.key = coalesce(nullif(x.grp, ''), x.id) AND z.lone = (x.grp = '')
			AND z.leased AND z.fence = x.fence AND z.salt = x.salt LIMIT 1) l
	LOOP
		IF p_wait THEN
			SELECT z.ctid INTO t FROM rota.lane z WHERE z.queue = p_queue AND z.key = coalesce(nullif(r.grp, ''), r.id) AND z.lone = (r.grp = '')
				AND z.leased AND z.fence = r.fence AND z.salt = r.salt FOR UPDATE;
			tids[r.ord] := t;
		ELSE
			tids[r.ord] := rota.busy();
		END IF;
	END LOOP;
	RETURN tids;
END $$;

-- extend prolongs leases; it gives the new end for each, 0 for a lost one, and its
-- negative when the job is to be cancelled. Behind these follow the numbers of those
-- that it could not lock, and left: it waits for nobody.
CREATE OR REPLACE FUNCTION rota.extend(p_queue text, p_grp text[], p_id text[], p_fence bigint[], p_salt bigint[], p_tid tid[], p_lease bigint)
RETURNS bigint[] LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	v_q integer;
	v_until bigint;
	v_tid tid[];
	v_ends bigint[] := array_fill(0::bigint, ARRAY[array_length(p_id, 1)]);
	v_busy bigint[] := '{}';
	r record;
BEGIN
	SELECT x.id INTO v_q FROM rota.queue x WHERE x.name = p_queue;
	PERFORM pg_current_xact_id();
	v_tid := rota.lane_tids(false, v_q, p_grp, p_id, p_fence, p_salt, p_tid);
	v_until := rota.us() + p_lease;
	FOR r IN
		WITH a AS MATERIALIZED (
			SELECT x.tid, x.ord, j.cancel FROM unnest(v_tid, p_id) WITH ORDINALITY AS x(tid, id, ord),
			LATERAL (SELECT z.job FROM rota.lane z WHERE z.ctid = x.tid) l,
			LATERAL (SELECT z.cancel FROM rota.job z WHERE z.queue = v_q AND z.id = x.id AND z.seq = l.job LIMIT 1) j
		), u AS (
			UPDATE rota.lane z SET due = v_until FROM (SELECT DISTINCT a.tid FROM a) y WHERE z.ctid = y.tid
		)
		SELECT a.ord::integer AS ord, a.cancel FROM a -- a lease may be named twice
	LOOP
		v_ends[r.ord] := CASE WHEN r.cancel THEN -v_until ELSE v_until END;
	END LOOP;
	IF rota.busy() = ANY (v_tid) THEN
		FOR r IN
			SELECT x.ord::integer AS ord, l.due, j.cancel FROM unnest(v_tid, p_grp, p_id, p_fence, p_salt) WITH ORDINALITY AS x(tid, grp, id, fence, salt, ord),
			LATERAL (SELECT z.job, z.due FROM rota.lane z WHERE z.queue = v_q AND z.key = coalesce(nullif(x.grp, ''), x.id) AND z.lone = (x.grp = '')
				AND z.leased AND z.fence = x.fence AND z.salt = x.salt LIMIT 1) l,
			LATERAL (SELECT z.cancel FROM rota.job z WHERE z.queue = v_q AND z.id = x.id AND z.seq = l.job LIMIT 1) j
			WHERE x.tid = rota.busy()
		LOOP
			v_ends[r.ord] := CASE WHEN r.cancel THEN -r.due ELSE r.due END;
			v_busy := v_busy || r.ord::bigint;
		END LOOP;
	END IF;
	RETURN v_ends || v_busy;
END $$;

-- save patches a running job; false when the lease is lost.
CREATE OR REPLACE FUNCTION rota.save(p_queue text, p_grp text, p_id text, p_fence bigint, p_salt bigint, p_tid tid, p_payload bytea, p_set text, p_drop text, p_result bytea)
RETURNS boolean LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	v_q integer;
	t tid;
	j rota.job;
BEGIN
	SELECT x.id INTO v_q FROM rota.queue x WHERE x.name = p_queue;
	t := (rota.lane_tids(true, v_q, ARRAY[p_grp], ARRAY[p_id], ARRAY[p_fence], ARRAY[p_salt], ARRAY[p_tid]))[1];
	SELECT * INTO j FROM rota.job x WHERE x.queue = v_q AND x.id = p_id AND x.seq = (SELECT l.job FROM rota.lane l WHERE l.ctid = t);
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM rota.store_job(rota.patched(j, p_payload, p_set::jsonb, p_drop::jsonb, p_result));
	RETURN true;
END $$;
