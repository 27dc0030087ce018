-- claim leases up to p_max groups that are due: those of higher tiers first, or
-- by turn (p_turn) from each tier its share. What decides on a lane is always
-- read by a statement that begins after the lane is locked. A claim never waits
-- for a lane or arrival that another transaction has locked, and hands out a job with
-- a key only under the job's lock, because a publish that replaces it has that for as long
-- as its transaction is open. It does wait for one that is making the lane of a group
-- it is about to make itself, because only the seat's uniqueness tells who is first:
-- that is another claim or an act of a person, and these are short.
--
-- It gives a row for each lease, and a last one (o_ord -1) whose o_meta says what
-- came of it: [outcome, now, next, bounds...]; outcome 0: done, 1: paused, 2: no
-- such queue, 3: isolation other than read committed, 4: done, and there may be more
-- at once, because enough was looked at.
CREATE OR REPLACE FUNCTION rota.claim(p_queue text, p_max integer, p_min integer, p_lease bigint, p_owner text, p_salt bigint, p_bounds bigint[], p_turn boolean)
RETURNS TABLE (o_ord integer, o_fence bigint, o_until bigint, o_meta bigint[],
	o_seq bigint, o_id text, o_grp text, o_kind text, o_payload bytea, o_headers text, o_prio integer, o_attempt integer, o_max_attempts integer,
	o_run_at bigint, o_timeout bigint, o_deadline bigint, o_retention bigint, o_on_failure integer, o_on_exhausted integer, o_scheduling integer,
	o_created_at bigint, o_failures text, o_result bytea, o_dedup_key text, o_tid tid)
LANGUAGE plpgsql ROWS 50
@plans@
AS $$
DECLARE
	q rota.queue;
	b bigint[];
	v_q integer;
	v_now bigint;
	v_began bigint;
	v_until bigint;
	v_tier integer;
	v_got integer := 0;
	v_mark bigint;
	v_aside bigint;
	v_first bigint[]; -- see firsts
	v_shares integer[];
	v_most integer := p_max;
	v_need integer;
	v_base bigint;
	v_seen integer := 0; -- lanes and arrivals that were looked at, of all tiers
	v_stuck integer; -- those of this tier that stay where they are
	v_busy text[] := '{}'; -- some groups whose seats others have locked
	v_over boolean := false; -- enough was looked at
	v_slow boolean; -- much was passed in scans
	v_next bigint;
	n integer;
	m integer;
	v_low bigint; -- see lowest_place
	-- what is next in turn: lanes (s), leases that ran out (e), arrivals (f)
	s_tid tid[]; s_ord integer[]; s_key text[]; s_lone boolean[]; s_floor bigint[]; s_dues bigint[]; s_borns bigint[];
	e_tid tid[]; e_ord integer[]; e_dues bigint[]; e_borns bigint[]; e_keys text[]; e_kinds integer[];
	-- how far this claim has come in the tier: what it has passed is dead to its scans, or was left
	s_due bigint; s_born bigint; s_last text;
	e_due bigint; e_born bigint; e_last text;
	v_from bigint[]; -- where it began
	v_kept integer; -- how many leases of lanes that stay closed may end in one round
	v_had integer;
	v_ran integer; -- leases that ran out, of which those may stay that come behind all others
	r record;
	f_tid tid[]; f_ord integer[]; f_key text[]; f_place bigint[];
	f_at bigint; f_grp text; f_behind bigint; v_at bigint;
	g_tid tid[]; g_key text[]; g_fence bigint[]; g_job bigint[]; g_floor bigint[]; -- lanes that were made and leased, or are empty
	v_made boolean; -- lanes that are due were made
	v_again boolean; -- and some can be claimed
	l rota.lane;
	v_tid tid;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		o_ord := -1; o_meta := ARRAY[3]; RETURN NEXT; RETURN;
	END IF;
	b := rota.bounds_valid(p_bounds);
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue;
	IF NOT q.alive THEN
		q := rota.revive(q);
	END IF;
	IF q.paused OR q.alive IS NOT TRUE THEN
		o_ord := -1; o_meta := ARRAY[CASE WHEN q.paused THEN 1 ELSE 2 END]; RETURN NEXT; RETURN;
	END IF;
	v_q := q.id;
	v_now := rota.us();
	v_began := v_now;
	v_mark := b[1];
	b := rota.bounds_mark(b, v_now);
	v_aside := rota.first_aside(v_q, b[5]);
	IF v_aside <= v_now THEN
		b := rota.passed(b, 24, rota.join_due(q, greatest(b[5], b[24]), v_now, 1000), v_began);
		b := rota.bounds_valid(b);
		v_aside := rota.first_aside(v_q, b[5]);
	END IF;
	IF rota.first_later(v_q, b[4]) IS NOT NULL THEN
		b := rota.passed(b, 40, rota.meet_later(q, greatest(b[4], b[40]), 1000), v_began);
		b := rota.bounds_valid(b);
	END IF;
	v_first := rota.firsts(q, b, v_now);
	IF b[1] > v_mark THEN
		b := rota.bounds_raise(q, b, v_first, v_aside);
	END IF;
	IF p_turn AND p_min < 4 THEN
		v_shares := rota.shares(q, p_max, p_min, v_now, b, v_first);
	END IF;
	v_low := rota.lowest_place(b);
	-- By turn, what a tier can not use of its share, because others have locked it, is for all.
	FOREACH v_tier IN ARRAY CASE WHEN v_shares IS NULL THEN '{4,3,2,1,0}'::integer[] ELSE '{4,3,2,1,0,-1,4,3,2,1,0}' END LOOP
		IF v_tier < 0 THEN
			EXIT WHEN v_got = p_max;
			v_shares := NULL;
			v_most := p_max;
		END IF;
		CONTINUE WHEN v_tier < p_min OR least(v_first[1 + v_tier], v_first[6 + v_tier], v_first[11 + v_tier], v_now + 1) > v_now;
		IF v_shares IS NOT NULL THEN
			v_most := least(p_max, v_got + v_shares[v_tier + 1]);
		END IF;
		f_at := greatest(b[8 + v_tier], b[25 + v_tier]);
		f_grp := '';
		f_behind := -1;
		s_due := greatest(b[13 + v_tier], b[30 + v_tier]); s_born := -1; s_last := '';
		e_due := greatest(b[18 + v_tier], b[35 + v_tier]); e_born := -1; e_last := '';
		v_from := ARRAY[f_at, s_due, e_due];
		v_kept := 0;
		v_stuck := 0;
		LOOP
			v_had := v_got;
			v_need := v_most - v_got;
			EXIT WHEN v_need = 0 OR v_over;
			IF (v_seen > 20000 OR v_stuck > 5000) AND v_from <> ARRAY[f_at, s_due, e_due] THEN -- the next claim goes on from here
				v_over := true;
				EXIT;
			END IF;
			WITH f AS MATERIALIZED (
				SELECT a.ctid, a.grp, a.at, a.place FROM rota.arrival a
				WHERE a.queue = v_q AND a.tier = v_tier AND a.at <= v_now + q.head_start AND (a.at, a.grp, a.place) > (f_at, f_grp, f_behind)
					AND a.grp <> ALL (v_busy)
				ORDER BY a.at, a.grp, a.place LIMIT v_need FOR UPDATE SKIP LOCKED
			), s AS MATERIALIZED (
				SELECT x.ctid, x.key, x.lone, x.floor, x.due, x.born FROM rota.lane x
				WHERE x.queue = v_q AND x.tier = v_tier AND x.leased = false AND (x.due, x.born, x.key) > (s_due, s_born, s_last)
					AND x.due <= (SELECT CASE WHEN count(*) = v_need THEN max(f.at) - q.head_start ELSE v_now END FROM f)
				ORDER BY x.due, x.born, x.key LIMIT v_need FOR UPDATE SKIP LOCKED
			), e AS MATERIALIZED (
				SELECT x.ctid, x.key, x.floor, x.due, x.born, x.paused OR x.held AS kept FROM rota.lane x
				WHERE x.queue = v_q AND x.tier = v_tier AND x.leased = true AND (x.due, x.born, x.key) > (e_due, e_born, e_last) AND x.due <= v_now
				ORDER BY x.due, x.born, x.key LIMIT greatest(v_need, v_kept) FOR UPDATE SKIP LOCKED
			), c AS MATERIALIZED ( -- what may give leases
				SELECT x.* FROM (
					SELECT 1 AS kind, f.ctid, f.grp AS key, false AS lone, f.place AS floor, f.at - q.head_start AS due, 0::bigint AS born FROM f
					UNION ALL SELECT 2, s.ctid, s.key, s.lone, s.floor, s.due, s.born FROM s
					UNION ALL SELECT 3, e.ctid, e.key, NULL, e.floor, e.due, e.born FROM e WHERE NOT e.kept) x
				WHERE x.due <= (SELECT CASE WHEN count(*) = greatest(v_need, v_kept) THEN max(e.due) ELSE v_now END FROM e)
				ORDER BY x.due, x.born, x.key, x.kind, x.floor LIMIT v_need
			), u AS (
				SELECT y.*, (row_number() OVER ())::integer AS ord FROM (
					SELECT c.* FROM c
					UNION ALL SELECT 4, e.ctid, e.key, NULL, e.floor, e.due, e.born FROM e WHERE e.kept AND ((SELECT count(*) FROM c) < v_need
						OR (e.due, e.born, e.key) < (SELECT c.due, c.born, c.key FROM c ORDER BY c.due DESC, c.born DESC, c.key DESC LIMIT 1))) y
			)
			SELECT array_agg(u.ctid) FILTER (WHERE kind = 2), array_agg(u.ord) FILTER (WHERE kind = 2),
				array_agg(u.key) FILTER (WHERE kind = 2), array_agg(u.lone) FILTER (WHERE kind = 2), array_agg(u.floor) FILTER (WHERE kind = 2),
				array_agg(u.due) FILTER (WHERE kind = 2), array_agg(u.born) FILTER (WHERE kind = 2),
				array_agg(u.ctid) FILTER (WHERE kind >= 3), array_agg(u.ord) FILTER (WHERE kind >= 3),
				array_agg(u.due) FILTER (WHERE kind >= 3), array_agg(u.born) FILTER (WHERE kind >= 3), array_agg(u.key) FILTER (WHERE kind >= 3), array_agg(u.kind) FILTER (WHERE kind >= 3),
				(SELECT count(*) FROM e),
				array_agg(u.ctid) FILTER (WHERE kind = 1), array_agg(u.ord) FILTER (WHERE kind = 1), array_agg(u.key) FILTER (WHERE kind = 1),
				array_agg(u.floor) FILTER (WHERE kind = 1), max(u.due) FILTER (WHERE kind = 1) + q.head_start, count(*)
			INTO s_tid, s_ord, s_key, s_lone, s_floor, s_dues, s_borns, e_tid, e_ord, e_dues, e_borns, e_keys, e_kinds, v_ran, f_tid, f_ord, f_key, f_place, v_at, n FROM u;
			EXIT WHEN n = 0;
			v_seen := v_seen + n;
			v_again := false;
			IF v_until IS NULL THEN -- this transaction has an id by now
				v_now := rota.us();
				v_until := v_now + p_lease;
			END IF;
			v_base := rota.take(n) - 1;
			IF s_tid IS NOT NULL THEN
				m := array_length(s_tid, 1);
				s_due := s_dues[m]; s_born := s_borns[m]; s_last := s_key[m];
			END IF;
			-- Leases that ran out: end them, then treat the lane like the others.
			IF e_tid IS NOT NULL THEN
				FOR r IN SELECT x.* FROM unnest(e_dues, e_borns, e_keys, e_kinds) AS x(due, born, key, kind)
					WHERE x.kind = 3 OR array_length(e_tid, 1) = v_ran ORDER BY x.due DESC, x.born DESC, x.key COLLATE "C" DESC LIMIT 1
				LOOP
					e_due := r.due; e_born := r.born; e_last := r.key;
				END LOOP;
				FOR m IN 1..array_length(e_tid, 1) LOOP
					SELECT * INTO l FROM rota.lane x WHERE x.ctid = e_tid[m];
					v_tid := rota.expire(q, l, e_tid[m], v_now);
					IF v_tid IS NOT NULL THEN
						s_tid := s_tid || v_tid; s_ord := s_ord || e_ord[m]; s_key := s_key || l.key;
						s_lone := s_lone || l.lone; s_floor := s_floor || l.floor;
					END IF;
				END LOOP;
			END IF;

			IF s_tid IS NOT NULL THEN
				RETURN QUERY
				WITH h AS MATERIALIZED (
					SELECT x.tid, x.ord, x.key, x.lone, j.*, j.run_at <= v_now AS fit FROM unnest(s_tid, s_ord, s_key, s_lone, s_floor) AS x(tid, ord, key, lone, floor)
					LEFT JOIN LATERAL (
						(SELECT j1.ctid AS jtid, j1.* FROM rota.job j1 WHERE NOT x.lone AND j1.queue = v_q AND j1.grp = x.key AND j1.inline AND j1.place >= x.floor
							ORDER BY j1.place, j1.seq LIMIT 1)
						UNION ALL
						(SELECT j2.ctid AS jtid, j2.* FROM rota.job j2 WHERE x.lone AND j2.queue = v_q AND j2.id = x.key AND j2.state < 5 LIMIT 1)
					) j ON true
				), k AS MATERIALIZED (
					SELECT h.seq FROM h, LATERAL (SELECT z.ctid AS jtid FROM rota.job z WHERE z.ctid = h.jtid FOR NO KEY UPDATE SKIP LOCKED) z
					WHERE h.fit AND h.dedup_key IS NOT NULL AND z.jtid = h.jtid
				), gone AS (
					DELETE FROM rota.lane x USING h WHERE x.ctid = h.tid AND h.seq IS NULL AND h.lone
				), later AS (
					UPDATE rota.lane x SET due = h.run_at FROM h WHERE x.ctid = h.tid AND NOT h.fit
				), took AS (
					UPDATE rota.lane x SET leased = true, due = v_until, floor = least(h.place, greatest(x.floor, b[1])), fence = greatest(v_base + h.ord, x.fence + 1),
						salt = p_salt, job = h.seq, attempt = h.attempt + 1, owner = p_owner, claimed_at = v_now, claimed_from = h.state
					FROM h WHERE x.ctid = h.tid AND h.fit AND (h.dedup_key IS NULL OR h.seq IN (SELECT k.seq FROM k))
					RETURNING v_seen - n + h.ord, x.fence, v_until, NULL::bigint[], h.seq, h.id, h.grp, h.kind, h.payload, h.headers::text, x.tier::integer, x.attempt, h.max_attempts,
						h.run_at, h.timeout, h.deadline, h.retention, h.on_failure::integer, h.on_exhausted::integer, h.scheduling::integer,
						h.created_at, h.failures::text, h.result, h.dedup_key, x.ctid
				)
				SELECT * FROM took;
				GET DIAGNOSTICS m = ROW_COUNT;
				v_got := v_got + m;
				IF m < array_length(s_tid, 1) THEN -- lanes that stayed where they were have an empty line, or a head that is being replaced
					IF e_tid IS NOT NULL THEN -- one whose lease this claim has ended may be due since before the bounds
						PERFORM rota.rewound();
					END IF;
					SELECT array_agg(x.ctid) FILTER (WHERE x.drained), array_agg(x.key) FILTER (WHERE x.drained), array_agg(x.floor) FILTER (WHERE x.drained),
						v_stuck + count(*) FILTER (WHERE NOT x.drained)
					INTO g_tid, g_key, g_floor, v_stuck
					FROM unnest(s_tid) AS y(tid), LATERAL (SELECT z.ctid, z.key, z.floor, NOT z.lone AND (SELECT j.seq FROM rota.job j
						WHERE j.queue = v_q AND j.grp = z.key AND j.inline AND j.place >= z.floor ORDER BY j.place, j.seq LIMIT 1) IS NULL AS drained
						FROM rota.lane z WHERE z.ctid = y.tid) x;
					IF g_tid IS NOT NULL THEN
						PERFORM rota.vacate(v_q, g_tid, g_key, g_floor, false, v_now);
					END IF;
				END IF;
			END IF;

			IF f_tid IS NOT NULL THEN
				f_at := v_at;
				f_grp := f_key[array_length(f_key, 1)];
				f_behind := f_place[array_length(f_place, 1)];
				-- A group that has a lane needs no arrival. Its seat is locked for that: who
				-- is about to remove the lane looks at the line once more after us.
				WITH mine AS MATERIALIZED (
					SELECT k.tids FROM (SELECT x.key, array_agg(x.tid) AS tids FROM unnest(f_tid, f_key) AS x(tid, key) GROUP BY x.key) k,
					LATERAL (SELECT y.key FROM rota.seat y WHERE y.queue = v_q AND y.key = k.key FOR UPDATE SKIP LOCKED) s
				)
				DELETE FROM rota.arrival a USING (SELECT unnest(mine.tids) AS tid FROM mine) x WHERE a.ctid = x.tid;
				GET DIAGNOSTICS m = ROW_COUNT;
			END IF;
			IF m < array_length(f_tid, 1) THEN
				-- The others get one, leased if the arrival is that of the first job. An
				-- arrival of a job that has gone stands for those behind it.
				WITH h AS MATERIALIZED (
					SELECT x.*, j.ctid AS jtid, j.seq, j.place, j.run_at, j.created_at, j.attempt, j.prio, j.state, j.dedup_key,
						j.place = x.first AND j.run_at <= v_now AND j.prio = v_tier AS fit
					FROM unnest(f_tid, f_ord, f_key, f_place) AS x(tid, ord, key, first) LEFT JOIN LATERAL (
						SELECT j1.ctid, j1.* FROM rota.job j1 WHERE j1.queue = v_q AND j1.grp = x.key AND j1.inline AND j1.place >= least(v_low, x.first)
						ORDER BY j1.place, j1.seq LIMIT 1) j ON true
					WHERE (SELECT y.key FROM rota.seat y WHERE y.queue = v_q AND y.key = x.key LIMIT 1) IS NULL
				), first AS MATERIALIZED (
					SELECT DISTINCT ON (h.key) h.* FROM h WHERE h.place >= h.first ORDER BY h.key, h.place > h.first, h.ord
				), k AS MATERIALIZED (
					SELECT h.seq FROM first h, LATERAL (SELECT z.ctid AS jtid FROM rota.job z WHERE z.ctid = h.jtid FOR NO KEY UPDATE SKIP LOCKED) z
					WHERE h.fit AND h.dedup_key IS NOT NULL
				), best AS MATERIALIZED (
					SELECT h.*, h.fit AND (h.dedup_key IS NULL OR h.seq IN (SELECT k.seq FROM k)) AS ok FROM first h
				), seats AS (
					INSERT INTO rota.seat (queue, key) SELECT v_q, best.key FROM best ON CONFLICT (queue, key) DO NOTHING RETURNING key
				), made AS (
					INSERT INTO rota.lane (queue, key, tier, leased, due, floor, fence, salt, job, attempt, owner, claimed_at, claimed_from)
					SELECT v_q, h.key, h.prio, h.ok,
						CASE WHEN h.ok THEN v_until WHEN h.run_at > h.created_at THEN h.run_at ELSE h.created_at - q.head_start END,
						least(h.place, b[1]), v_base + h.ord, CASE WHEN h.ok THEN p_salt END, CASE WHEN h.ok THEN h.seq END,
						CASE WHEN h.ok THEN h.attempt + 1 END, CASE WHEN h.ok THEN p_owner END, CASE WHEN h.ok THEN v_now END, CASE WHEN h.ok THEN h.state END
					FROM best h WHERE h.key IN (SELECT seats.key FROM seats)
					RETURNING ctid, key, fence, leased, due, job, floor
				), used AS (
					DELETE FROM rota.arrival a USING h
					WHERE a.ctid = h.tid AND (h.seq IS NULL OR h.place < h.first OR h.key IN (SELECT seats.key FROM seats))
					RETURNING 1
				)
				SELECT array_agg(made.ctid) FILTER (WHERE made.leased), array_agg(made.key) FILTER (WHERE made.leased), array_agg(made.fence) FILTER (WHERE made.leased),
					array_agg(made.job) FILTER (WHERE made.leased), array_agg(least(made.floor, v_low)) FILTER (WHERE made.leased),
					coalesce(bool_or(NOT made.leased AND made.due <= v_now), false),
					coalesce(bool_or(NOT made.leased AND made.due <= v_now AND made.key NOT IN (SELECT best.key FROM best WHERE best.fit)), false),
					v_stuck + array_length(f_tid, 1) - m - (SELECT count(*) FROM used)
				INTO g_tid, g_key, g_fence, g_job, g_floor, v_made, v_again, v_stuck FROM made;
				IF m = 0 AND v_got = v_had AND array_length(v_busy, 1) IS DISTINCT FROM 100 THEN
					v_busy := (v_busy || ARRAY(SELECT DISTINCT x FROM unnest(f_key) x
						WHERE (SELECT y.key FROM rota.seat y WHERE y.queue = v_q AND y.key = x LIMIT 1) IS NOT NULL AND x NOT IN (SELECT unnest(g_key))))[1:100];
				END IF;
				IF v_made THEN -- they are due, perhaps since before the bounds
					PERFORM rota.rewound();
					b[13 + v_tier] := 0;
				END IF;
				IF g_key IS NOT NULL THEN
					-- Now that the lane is there, its job is handed out if it is the first still. It
					-- is not when somebody else had made the lane before, changed the line, and
					-- removed the lane again. One statement does both, because a lane whose job it
					-- gives must keep its lease whatever is committed meanwhile.
					RETURN QUERY
					WITH h AS MATERIALIZED (
						SELECT x.tid, x.fence, x.job, j.* FROM unnest(g_tid, g_key, g_fence, g_job, g_floor) AS x(tid, key, fence, job, floor)
						LEFT JOIN LATERAL (SELECT j1.* FROM rota.job j1 WHERE j1.queue = v_q AND j1.grp = x.key AND j1.inline AND j1.place >= x.floor
							ORDER BY j1.place, j1.seq LIMIT 1) j ON true
					), back AS (
						UPDATE rota.lane x SET leased = false, tier = coalesce(h.prio, x.tier), floor = 0,
							due = CASE WHEN h.seq IS NULL THEN v_now WHEN h.run_at > h.created_at THEN h.run_at ELSE h.created_at - q.head_start END,
							salt = NULL, job = NULL, owner = NULL, attempt = NULL, claimed_at = NULL
						FROM h WHERE x.ctid = h.tid AND h.seq IS DISTINCT FROM h.job
					)
					SELECT (v_seen - n + h.fence - v_base)::integer, h.fence, v_until, NULL::bigint[], h.seq, h.id, h.grp, h.kind, h.payload, h.headers::text, v_tier, h.attempt + 1, h.max_attempts,
						h.run_at, h.timeout, h.deadline, h.retention, h.on_failure::integer, h.on_exhausted::integer, h.scheduling::integer,
						h.created_at, h.failures::text, h.result, h.dedup_key, h.tid
					FROM h WHERE h.seq = h.job;
					GET DIAGNOSTICS m = ROW_COUNT;
					v_got := v_got + m;
					IF m < array_length(g_key, 1) THEN -- the others may be due since before the bounds
						PERFORM rota.rewound();
						v_again := true;
						b[13 + v_tier] := 0;
					END IF;
				END IF;
			END IF;
			EXIT WHEN n < v_need AND NOT v_again;
			IF v_again THEN
				s_due := greatest(b[13 + v_tier], b[30 + v_tier]); s_born := -1; s_last := '';
			END IF;
			IF v_got = v_had THEN
				v_kept := least(2 * greatest(v_need, v_kept), 200);
			END IF;
		END LOOP;
		-- What scans pass because its group is in v_busy is not counted. It is looked at only
		-- when the claim took long, which a busy machine can cause as well.
		v_slow := array_length(v_busy, 1) > 0 AND rota.us() - v_began > 20000 AND rota.long(q, v_tier, v_from[1], v_now);
		IF v_stuck > 200 OR v_slow THEN
			b := rota.passed(b, 25 + v_tier, CASE WHEN v_slow AND v_got < v_most AND NOT v_over THEN greatest(f_at, v_now) ELSE f_at END, v_began);
			b := rota.passed(b, 30 + v_tier, s_due, v_began);
			b := rota.passed(b, 35 + v_tier, e_due, v_began);
		END IF;
	END LOOP;
	IF v_got > 0 AND version() LIKE '%linux%' THEN
		-- The commit waits for whoever reads the answer. One that does not read for as long as
		-- the leases last (of 10 seconds to 10 minutes) loses its connection, and so gives the groups back.
		PERFORM set_config('tcp_user_timeout', least(greatest(p_lease / 1000, 10000), 600000)::text, true);
	END IF;
	IF v_got > 0 AND q.event_ttl > 0 THEN
		PERFORM rota.claimed(q, v_until, p_salt);
	END IF;
	IF v_got < p_max THEN
		v_first := rota.firsts(q, b, 9223372036854775807);
		v_next := (SELECT min(x) FROM unnest(v_first[1 + p_min:5] || v_first[6 + p_min:10] || v_first[11 + p_min:15] || v_aside || CASE WHEN v_first[16] IS NOT NULL THEN v_now END) x);
		PERFORM rota.idle(q);
	END IF;
	v_now := rota.us();
	o_ord := -1;
	o_meta := ARRAY[CASE WHEN v_over THEN 4 ELSE 0 END, v_now, coalesce(v_next, 0)] || b;
	RETURN NEXT;
END $$;

-- long tells whether 1,000 arrivals or more of a tier have come since then.
CREATE OR REPLACE FUNCTION rota.long(q rota.queue, p_tier integer, since bigint, now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT a.at FROM rota.arrival a WHERE a.queue = q.id AND a.tier = p_tier AND a.at >= since AND a.at <= now + q.head_start
		ORDER BY a.at OFFSET 999 LIMIT 1) IS NOT NULL;
END $$;

-- shares gives how many leases each tier (from 0 on) may get in a claim by turn: as
-- many as it has among the p_max groups that have been due longest, of equal ones
-- the higher tier's; null that each may have all. What other claims have locked is
-- counted as well: it is the number that matters. Arrivals of groups that have a lane are taken away here,
-- because in a tier that gets no share nobody else might.
CREATE OR REPLACE FUNCTION rota.shares(q rota.queue, p_max integer, p_min integer, now bigint, b bigint[], f bigint[]) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
	shares integer[];
	first bigint[]; -- due times of new groups
	tiers integer[]; -- and their tiers
	t integer;
	n integer;
	good bigint[];
	f_tid tid[]; f_key text[];
	f_at bigint; f_grp text; f_behind bigint;
	left_over integer;
	v_low bigint := rota.lowest_place(b);
BEGIN
	-- When only one tier has anything to give, it gets all.
	IF (SELECT count(*) FROM generate_series(p_min, 4) x WHERE least(f[1 + x], f[6 + x], f[11 + x]) <= now) < 2 THEN
		RETURN NULL;
	END IF;
	FOR t IN p_min..4 LOOP
		CONTINUE WHEN f[1 + t] IS NULL OR f[1 + t] > now;
		f_at := greatest(b[8 + t], b[25 + t]);
		f_grp := '';
		f_behind := -1;
		left_over := p_max;
		FOR i IN 1..20 LOOP
			WITH f AS MATERIALIZED (
				SELECT a.ctid, a.grp, a.at, a.place FROM rota.arrival a
				WHERE a.queue = q.id AND a.tier = t AND a.at <= now + q.head_start AND (a.at, a.grp, a.place) > (f_at, f_grp, f_behind)
				ORDER BY a.at, a.grp, a.place LIMIT p_max
			), g AS (
				SELECT f.*, (SELECT x.key FROM rota.seat x WHERE x.queue = q.id AND x.key = f.grp LIMIT 1) IS NOT NULL AS stale,
					h.run_at <= now AND h.prio = t AND h.place = f.place AS ok
				FROM f LEFT JOIN LATERAL (SELECT j.run_at, j.prio, j.place FROM rota.job j WHERE j.queue = q.id AND j.grp = f.grp AND j.inline
					AND j.place >= least(v_low, f.place) ORDER BY j.place, j.seq LIMIT 1) h ON true
				ORDER BY f.at, f.grp, f.place
			)
			SELECT count(*), array_agg(g.at - q.head_start) FILTER (WHERE g.ok AND NOT g.stale), array_agg(g.ctid) FILTER (WHERE g.stale), array_agg(g.grp) FILTER (WHERE g.stale),
				(array_agg(g.at))[count(*)], (array_agg(g.grp))[count(*)], (array_agg(g.place))[count(*)]
			INTO n, good, f_tid, f_key, f_at, f_grp, f_behind FROM g;
			IF good IS NOT NULL THEN
				first := first || good[1:left_over];
				tiers := tiers || array_fill(t, ARRAY[least(left_over, array_length(good, 1))]);
				left_over := left_over - array_length(good, 1);
			END IF;
			IF f_key IS NOT NULL THEN -- as in claim
				WITH mine AS MATERIALIZED (
					SELECT k.tids FROM (SELECT x.key, array_agg(x.tid) AS tids FROM unnest(f_tid, f_key) AS x(tid, key) GROUP BY x.key) k,
					LATERAL (SELECT y.key FROM rota.seat y WHERE y.queue = q.id AND y.key = k.key FOR UPDATE SKIP LOCKED) s
				), free AS MATERIALIZED (
					SELECT y.ctid FROM (SELECT unnest(mine.tids) AS tid FROM mine) x,
					LATERAL (SELECT z.ctid FROM rota.arrival z WHERE z.ctid = x.tid FOR UPDATE SKIP LOCKED) y
				)
				DELETE FROM rota.arrival a USING free WHERE a.ctid = free.ctid;
			END IF;
			EXIT WHEN n < p_max OR left_over <= 0;
		END LOOP;
	END LOOP;
	SELECT array_agg((SELECT count(*) FROM unnest(y.tiers) x WHERE x = s.t)::integer ORDER BY s.t) INTO shares
	FROM generate_series(0, 4) s(t), (SELECT array_agg(w.t) AS tiers FROM (
		SELECT z.t FROM (
			SELECT x.due, x.t FROM unnest(first, tiers) AS x(due, t)
			UNION ALL
			SELECT x.due, k.t FROM generate_series(p_min, 4) k(t), LATERAL (SELECT l.due FROM rota.lane l
				WHERE l.queue = q.id AND l.tier = k.t AND l.leased = false AND l.due >= greatest(b[13 + k.t], b[30 + k.t]) AND l.due <= now ORDER BY l.due LIMIT p_max) x
			UNION ALL
			SELECT x.due, k.t FROM generate_series(p_min, 4) k(t), LATERAL (SELECT l.due FROM rota.lane l
				WHERE l.queue = q.id AND l.tier = k.t AND l.leased = true AND l.due >= greatest(b[18 + k.t], b[35 + k.t]) AND l.due <= now ORDER BY l.due LIMIT p_max) x
		) z ORDER BY z.due, z.t DESC LIMIT p_max) w) y;
	RETURN shares;
END $$;

-- claimed writes the events of the jobs just leased.
CREATE OR REPLACE FUNCTION rota.claimed(q rota.queue, p_until bigint, p_salt bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO rota.event (at, queue, attempt, kind, grp, job, jobkind, worker)
	SELECT x.claimed_at, q.id, x.attempt, 'started', j.grp, j.id, j.kind, coalesce(x.owner, '')
	FROM rota.lane x, LATERAL rota.running_job(x) j
	WHERE x.queue = q.id AND x.tier = ANY (ARRAY[0, 1, 2, 3, 4]) AND x.leased = true AND x.due = p_until AND x.salt = p_salt
	ORDER BY x.fence;
END $$;

-- idle remembers for a little while that a worker of the queue had nothing to do.
CREATE OR REPLACE FUNCTION rota.idle(q rota.queue) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	now bigint := rota.us();
BEGIN
	IF q.idle_until < now + 5000000 THEN
		UPDATE rota.queue x SET idle_until = now + 10000000
		WHERE x.id = (SELECT y.id FROM rota.queue y WHERE y.id = q.id AND y.idle_until < now + 5000000 FOR NO KEY UPDATE SKIP LOCKED);
	END IF;
END $$;
