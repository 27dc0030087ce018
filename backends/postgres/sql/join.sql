-- What a claim does before it looks whose turn it is: jobs join whose time has come, and
-- groups get their lanes whose first job stands in line before it is due.

-- first_aside is when the first job that stands aside is to join.
CREATE OR REPLACE FUNCTION rota.first_aside(p_queue integer, low bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT j.aside FROM rota.job j WHERE j.queue = p_queue AND j.aside >= low ORDER BY j.aside LIMIT 1);
END $$;

-- join_due lets jobs join whose time has come. It does not wait for a group that
-- is being settled: that one's jobs join with a later claim. They are passed once such
-- groups are many, see passed.
CREATE OR REPLACE FUNCTION rota.join_due(q rota.queue, low bigint, now bigint, n integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	j rota.job;
	since bigint;
	v_aside bigint := low; v_seq bigint := -1; -- how far it has come
	busy text[] := '{}'; -- groups that others have locked
	joined integer := 0;
	began CONSTANT bigint := rota.us();
BEGIN
	LOOP
		FOR j IN SELECT x.* FROM rota.job x WHERE x.queue = q.id AND (x.aside, x.seq) > (v_aside, v_seq) AND x.aside <= now AND x.grp <> ALL (busy)
			ORDER BY x.aside, x.seq LIMIT least(200, n - joined) FOR UPDATE SKIP LOCKED
		LOOP
			v_aside := j.aside; v_seq := j.seq;
			CONTINUE WHEN j.grp = ANY (busy);
			PERFORM 1 FROM rota.lane l WHERE l.queue = q.id AND l.key = j.grp AND l.lone = false FOR UPDATE SKIP LOCKED;
			IF NOT FOUND THEN
				IF EXISTS (SELECT 1 FROM rota.lane l WHERE l.queue = q.id AND l.key = j.grp AND l.lone = false)
					OR NOT rota.make_lane(q, j.grp, rota.head(q.id, j.grp, 0))
				THEN
					busy := busy || j.grp;
					CONTINUE;
				END IF;
			END IF;
			since := j.aside;
			j.state := CASE WHEN j.run_at > now THEN 1 ELSE 2 END; -- 1: replaced, and to stand in line before it is due
			PERFORM rota.join_line(q, j, CASE j.place WHEN 0 THEN since ELSE j.place END, since, now);
			joined := joined + 1;
		END LOOP;
		IF NOT FOUND OR joined >= n THEN
			-- To pass jobs of busy groups in the scan takes its time, too.
			RETURN CASE WHEN joined < n AND array_length(busy, 1) > 0 AND rota.us() - began > 20000 THEN now END;
		ELSIF array_length(busy, 1) > 100 AND v_aside > low THEN
			RETURN v_aside;
		END IF;
	END LOOP;
END $$;

-- meet_later makes the lanes of groups that may have got their first job, one that
-- stands in line before it is due. What others have locked or made meanwhile is left
-- to a later claim; those are passed once they are many, see passed.
CREATE OR REPLACE FUNCTION rota.meet_later(q rota.queue, low bigint, n integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	a record;
	h rota.job;
	v_at bigint := low; v_grp text := ''; v_place bigint := -1; -- how far it has come
	busy text[] := '{}'; -- groups that others have locked
	done integer := 0;
	began CONSTANT bigint := rota.us();
BEGIN
	LOOP
		FOR a IN SELECT x.ctid AS tid, x.at, x.grp, x.place FROM rota.arrival x WHERE x.queue = q.id AND x.tier = 5 AND (x.at, x.grp, x.place) > (v_at, v_grp, v_place)
			AND x.grp <> ALL (busy) ORDER BY x.at, x.grp, x.place LIMIT 200 FOR UPDATE SKIP LOCKED
		LOOP
			v_at := a.at; v_grp := a.grp; v_place := a.place;
			CONTINUE WHEN a.grp = ANY (busy);
			PERFORM 1 FROM rota.seat s WHERE s.queue = q.id AND s.key = a.grp FOR UPDATE SKIP LOCKED;
			IF NOT FOUND THEN
				IF EXISTS (SELECT 1 FROM rota.seat s WHERE s.queue = q.id AND s.key = a.grp) THEN
					busy := busy || a.grp;
					CONTINUE;
				END IF;
				h := rota.head(q.id, a.grp, 0);
				CONTINUE WHEN h.seq IS NOT NULL AND NOT rota.make_lane(q, a.grp, h);
			END IF;
			DELETE FROM rota.arrival x WHERE x.ctid = a.tid;
			done := done + 1;
		END LOOP;
		IF NOT FOUND OR done >= n THEN
			RETURN CASE WHEN done < n AND array_length(busy, 1) > 0 AND rota.us() - began > 20000 THEN began END;
		ELSIF array_length(busy, 1) > 100 AND v_at > low THEN
			RETURN v_at;
		END IF;
	END LOOP;
END $$;
