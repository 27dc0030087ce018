-- What readers see.

-- job_view is a job as readers see it: state, attempt, claim time and lease of a
-- running job are those of its lane, and the priority of a job in line is the tier
-- of its group.
CREATE OR REPLACE VIEW rota.job_view AS
	SELECT j.queue, j.seq, j.place, j.id, j.grp, j.kind, j.payload, j.headers::text AS headers, j.inline, j.state AS stored,
		CASE WHEN l.job = j.seq THEN l.tier WHEN NOT j.inline THEN j.prio WHEN l.tier >= 0 THEN l.tier
			ELSE (SELECT h.prio FROM rota.job h WHERE h.queue = j.queue AND h.grp = j.grp AND h.inline ORDER BY h.place, h.seq LIMIT 1) END::integer AS prio,
		CASE WHEN l.job = j.seq THEN 3 ELSE j.state END::integer AS state,
		CASE WHEN l.job = j.seq THEN l.attempt ELSE j.attempt END AS attempt,
		CASE WHEN l.job = j.seq THEN l.claimed_at ELSE j.claimed_at END AS claimed_at,
		CASE WHEN l.job = j.seq THEN l.due END AS until, CASE WHEN l.job = j.seq THEN l.fence END AS fence, CASE WHEN l.job = j.seq THEN l.owner END AS owner,
		j.max_attempts, j.run_at, j.timeout, j.deadline, j.retention, j.on_failure::integer AS on_failure, j.on_exhausted::integer AS on_exhausted,
		j.scheduling::integer AS scheduling, j.created_at, j.finished_at, j.cancel, j.failures::text AS failures, j.result, j.dedup_key
	FROM rota.job j LEFT JOIN LATERAL (SELECT * FROM rota.lane y WHERE y.queue = j.queue AND y.key = coalesce(j.grp, j.id) AND y.lone = (j.grp IS NULL) AND j.state < 5 LIMIT 1) l ON true;

-- running_ids lists the running jobs of a queue: those of the leased lanes.
CREATE OR REPLACE FUNCTION rota.running_ids(p_queue integer) RETURNS TABLE (claimed bigint, seq bigint, id text) LANGUAGE plpgsql STABLE ROWS 100
@plans@
AS $$
BEGIN
	RETURN QUERY SELECT l.claimed_at, l.job, j.id FROM rota.lane l, LATERAL (
		SELECT x.id FROM rota.job x WHERE NOT l.lone AND x.queue = l.queue AND x.grp = l.key AND x.inline AND x.place >= l.floor AND x.seq = l.job
		UNION ALL SELECT x.id FROM rota.job x WHERE l.lone AND x.queue = l.queue AND x.id = l.key LIMIT 1) j
	WHERE l.queue = p_queue AND l.tier = ANY (ARRAY[0, 1, 2, 3, 4]) AND l.leased = true AND l.due IS NOT NULL;
END $$;

-- group_view describes a group, whether it has a lane yet or not.
CREATE OR REPLACE FUNCTION rota.group_view(q rota.queue, g text)
RETURNS TABLE (o_name text, o_tier integer, o_depth bigint, o_head text, o_created bigint, o_due bigint, o_leased boolean, o_owner text, o_fence bigint,
	o_until bigint, o_paused boolean, o_held boolean, o_held_by text) LANGUAGE plpgsql STABLE ROWS 1
@plans@
AS $$
DECLARE
	l rota.lane;
	h rota.job;
BEGIN
	SELECT * INTO l FROM rota.lane x WHERE x.queue = q.id AND x.key = g AND NOT x.lone;
	IF l.leased THEN
		h := rota.running_job(l);
	END IF;
	IF h.seq IS NULL THEN
		h := rota.head(q.id, g, 0);
	END IF;
	IF h.seq IS NULL AND NOT coalesce(l.paused OR l.held, false) THEN
		RETURN;
	END IF;
	o_name := g;
	o_tier := CASE WHEN l.tier >= 0 THEN l.tier ELSE coalesce(h.prio, 0) END;
	o_depth := (SELECT count(*) FROM rota.job j WHERE j.queue = q.id AND j.grp = g AND j.inline);
	o_head := h.id;
	o_created := h.created_at;
	o_due := CASE WHEN l.paused OR l.held THEN NULL WHEN l.key IS NOT NULL THEN l.due WHEN h.run_at > h.created_at THEN h.run_at ELSE h.created_at - q.head_start END;
	o_leased := coalesce(l.leased, false);
	o_owner := l.owner; o_fence := l.fence; o_until := l.due;
	o_paused := coalesce(l.paused, false); o_held := coalesce(l.held, false); o_held_by := l.held_by;
	RETURN NEXT;
END $$;

-- group_names lists up to n groups behind a name, in order: those with a lane and
-- those with jobs, one step of an index for each.
CREATE OR REPLACE FUNCTION rota.group_names(p_queue integer, p_after text, n integer) RETURNS SETOF text LANGUAGE plpgsql STABLE
@plans@
AS $$
DECLARE
	g text COLLATE "C" := p_after;
BEGIN
	FOR i IN 1..n LOOP
		g := least((SELECT l.key FROM rota.lane l WHERE l.queue = p_queue AND l.key > g AND NOT l.lone ORDER BY l.key LIMIT 1),
			(SELECT j.grp FROM rota.job j WHERE j.queue = p_queue AND j.grp > g AND j.inline ORDER BY j.grp LIMIT 1));
		EXIT WHEN g IS NULL;
		RETURN NEXT g;
	END LOOP;
END $$;

-- tiers counts the unfinished jobs of a queue by the tier in force.
CREATE OR REPLACE FUNCTION rota.tiers(p_queue integer) RETURNS TABLE (tier integer, n bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN QUERY
	SELECT y.tier, sum(y.n)::bigint FROM (
		SELECT x.prio::integer AS tier, count(*) AS n FROM rota.job x WHERE x.queue = p_queue AND x.state < 5 AND NOT x.inline GROUP BY 1
		UNION ALL
		SELECT CASE WHEN l.tier >= 0 THEN l.tier
			ELSE (SELECT h.prio FROM rota.job h WHERE h.queue = p_queue AND h.grp = g.grp AND h.inline ORDER BY h.place, h.seq LIMIT 1) END::integer, g.n
		FROM (SELECT x.grp, count(*) AS n FROM rota.job x WHERE x.queue = p_queue AND x.inline GROUP BY x.grp) g
		LEFT JOIN rota.lane l ON l.queue = p_queue AND l.key = g.grp AND NOT l.lone
	) y GROUP BY y.tier;
END $$;

-- queue_view counts what a queue holds: by state (from state 0 on), by tier, and
-- groups: those with a lane, and those whose arrival no claim has met yet.
CREATE OR REPLACE FUNCTION rota.queue_view(q rota.queue) RETURNS TABLE (groups bigint, oldest bigint, states bigint[], tiers bigint[]) LANGUAGE plpgsql STABLE ROWS 1 AS $$
DECLARE
	r record;
BEGIN
	states := array_fill(0::bigint, ARRAY[8]);
	tiers := array_fill(0::bigint, ARRAY[5]);
	FOR r IN SELECT j.state AS s, count(*) AS n FROM rota.job j WHERE j.queue = q.id GROUP BY j.state LOOP
		states[r.s + 1] := r.n;
	END LOOP;
	-- Running jobs are stored in the state they were claimed from.
	FOR r IN SELECT l.claimed_from AS s, count(*) AS n FROM rota.lane l
		WHERE l.queue = q.id AND l.tier = ANY (ARRAY[0, 1, 2, 3, 4]) AND l.leased = true AND l.due IS NOT NULL GROUP BY 1
	LOOP
		states[r.s + 1] := greatest(states[r.s + 1] - r.n, 0);
		states[4] := states[4] + r.n;
	END LOOP;
	FOR r IN SELECT * FROM rota.tiers(q.id) LOOP
		tiers[r.tier + 1] := r.n;
	END LOOP;
	groups := (SELECT count(*) FROM rota.lane l WHERE l.queue = q.id AND NOT l.lone)
		+ (SELECT count(*) FROM (SELECT DISTINCT a.grp FROM rota.arrival a WHERE a.queue = q.id) x
			WHERE (SELECT l.key FROM rota.lane l WHERE l.queue = q.id AND l.key = x.grp AND NOT l.lone LIMIT 1) IS NULL
				AND (SELECT j.grp FROM rota.job j WHERE j.queue = q.id AND j.grp = x.grp AND j.inline LIMIT 1) IS NOT NULL);
	oldest := (SELECT j.created_at FROM rota.job j WHERE j.queue = q.id AND j.state = 2
		AND (SELECT l.job FROM rota.lane l WHERE l.queue = j.queue AND l.key = coalesce(j.grp, j.id) AND l.lone = (j.grp IS NULL) LIMIT 1) IS DISTINCT FROM j.seq
		ORDER BY j.place, j.seq LIMIT 1);
	RETURN NEXT;
END $$;
