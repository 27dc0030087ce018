-- The tables of a rota schema. All times are microseconds since 1970, all
-- durations named in the comments. docs/postgres.md explains each choice.

-- meta has one row: which version of this file is installed, and a digest of
-- the functions beside it.
CREATE TABLE rota.meta (
	version   integer NOT NULL,
	functions text    NOT NULL,
	one       boolean PRIMARY KEY DEFAULT true CHECK (one)
);

-- ticks gives out places and fences; rewind holds when somebody last wrote a
-- due time of the past. Sequences, because they are not part of a transaction
-- and leave no dead rows.
CREATE SEQUENCE rota.ticks;
CREATE SEQUENCE rota.rewind;

-- era has a row unless the server has recovered from a crash, or was a standby,
-- since the last claim: such a server empties it. It may have lost its last
-- commits then, and what claims took away is there again.
CREATE UNLOGGED TABLE rota.era (
	one boolean PRIMARY KEY DEFAULT true CHECK (one)
);

-- A queue's row is made once and never deleted, so that a publish under way can
-- not lose its queue; alive tells whether the queue exists.
CREATE TABLE rota.queue (
	id             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	alive          boolean  NOT NULL DEFAULT true,
	paused         boolean  NOT NULL DEFAULT false,
	on_failure     smallint NOT NULL DEFAULT 1, -- core.Block
	on_exhausted   smallint NOT NULL DEFAULT 1, -- core.DeadLetter
	scheduling     smallint NOT NULL DEFAULT 1, -- core.JoinWhenDue
	max_attempts   integer  NOT NULL DEFAULT 25,
	head_start     bigint   NOT NULL DEFAULT 10000000,
	keep_completed bigint   NOT NULL DEFAULT 0,
	keep_dead      bigint   NOT NULL DEFAULT 7776000000000,
	keep_cancelled bigint   NOT NULL DEFAULT 86400000000,
	keep_result    bigint   NOT NULL DEFAULT 3600000000,
	event_ttl      bigint   NOT NULL DEFAULT 0,
	idle_until     bigint   NOT NULL DEFAULT 0, -- a worker had nothing to do lately
	name           text COLLATE "C" NOT NULL UNIQUE,
	config         text     NOT NULL DEFAULT '' -- as Configure got it, in JSON
) WITH (fillfactor = 50);

-- A job. While it runs, its lease, attempt and claim time are in its lane: a
-- claim does not write here.
CREATE TABLE rota.job (
	seq          bigint   NOT NULL,
	place        bigint   NOT NULL DEFAULT 0, -- 0: never stood in line
	run_at       bigint   NOT NULL,
	created_at   bigint   NOT NULL,
	aside        bigint,  -- stands aside until then
	claimed_at   bigint,
	finished_at  bigint,
	expires      bigint,  -- finished, to be purged then
	deadline     bigint,
	timeout      bigint,  -- nanoseconds
	retention    bigint,  -- nanoseconds; -1 none; null the queue's
	queue        integer  NOT NULL,
	attempt      integer  NOT NULL DEFAULT 0,
	max_attempts integer  NOT NULL,
	state        smallint NOT NULL, -- core.State, never running
	prio         smallint NOT NULL DEFAULT 0,
	on_failure   smallint,
	on_exhausted smallint,
	scheduling   smallint,
	dedup_while  smallint,
	inline       boolean  NOT NULL, -- stands in its group's line
	cancel       boolean  NOT NULL DEFAULT false,
	id           text COLLATE "C" NOT NULL,
	grp          text COLLATE "C", -- null: no group
	kind         text     NOT NULL DEFAULT '',
	dedup_key    text COLLATE "C",
	payload      bytea    NOT NULL DEFAULT '',
	headers      jsonb,
	result       bytea,
	failures     jsonb,
	PRIMARY KEY (queue, id)
) WITH (fillfactor = 95, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX job_line ON rota.job (queue, grp, place, seq) WHERE inline;
CREATE INDEX job_pending ON rota.job (queue, place, seq) WHERE state = 2;
CREATE INDEX job_waiting ON rota.job (queue, state, run_at, seq) WHERE state IN (1, 4);
CREATE INDEX job_aside ON rota.job (queue, aside, seq) WHERE aside IS NOT NULL;
CREATE INDEX job_finished ON rota.job (queue, state, finished_at, seq) WHERE state IN (5, 6, 7);
CREATE INDEX job_expires ON rota.job (queue, expires) WHERE expires IS NOT NULL;

-- A lane is a group that was claimed, paused or held, or the lane of one job
-- without a group; its lease and its place among the turns are one row.
CREATE TABLE rota.lane (
	due        bigint, -- claimable from then on; null: not at all
	floor      bigint   NOT NULL DEFAULT 0, -- no job of the line has a place before it
	fence      bigint   NOT NULL DEFAULT 0,
	salt       bigint,  -- the random part of the token
	job        bigint,  -- seq of the running job
	claimed_at bigint,
	born       bigint   NOT NULL DEFAULT 0, -- of one job: its seq; orders what is due at the same time
	queue      integer  NOT NULL,
	attempt    integer, -- of the running job
	claimed_from smallint, -- the state it was in
	tier       smallint NOT NULL, -- -1: the line is empty
	lone       boolean  NOT NULL DEFAULT false, -- the lane of one job; key is its id
	leased     boolean  NOT NULL DEFAULT false,
	paused     boolean  NOT NULL DEFAULT false,
	held       boolean  NOT NULL DEFAULT false,
	key        text COLLATE "C" NOT NULL,
	owner      text,
	held_by    text COLLATE "C"
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX lane_turn ON rota.lane (queue, tier, leased, due, born, key) WHERE due IS NOT NULL;
CREATE INDEX lane_key ON rota.lane (queue, key, lone);

-- A seat is there exactly as long as the lane of a group: made and deleted with
-- it, and never updated. It makes the lane the only one of its group. The lane's
-- own index could not be unique at a fair price: each lease adds entries to it,
-- and a uniqueness check passes all that an old snapshot keeps.
CREATE TABLE rota.seat (
	queue integer NOT NULL,
	key   text COLLATE "C" NOT NULL,
	PRIMARY KEY (queue, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 1);

-- An arrival says that a group may have got its first job. Publishes insert
-- them, claims take them away; a group without a lane has one for its head. It is
-- due a head start before at, the time its job was created.
CREATE TABLE rota.arrival (
	at    bigint   NOT NULL,
	place bigint   NOT NULL,
	queue integer  NOT NULL,
	tier  smallint NOT NULL, -- 5: of a job that stands in line before it is due
	grp   text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX arrival_turn ON rota.arrival (queue, tier, at, grp, place);

-- A taken dedup key.
CREATE TABLE rota.dedup (
	queue  integer  NOT NULL,
	until  bigint,  -- null: no bound
	seq    bigint   NOT NULL, -- the holder
	states smallint NOT NULL,
	key    text COLLATE "C" NOT NULL,
	id     text COLLATE "C" NOT NULL,
	PRIMARY KEY (queue, key)
);
CREATE INDEX dedup_until ON rota.dedup (queue, until) WHERE until IS NOT NULL;

-- What happened, as differences: each call that settles adds a row, and rows are
-- summed up now and then.
CREATE TABLE rota.tally (
	queue     integer NOT NULL,
	day       integer NOT NULL, -- since 1970
	completed bigint  NOT NULL DEFAULT 0,
	failed    bigint  NOT NULL DEFAULT 0,
	dead      bigint  NOT NULL DEFAULT 0,
	cancelled bigint  NOT NULL DEFAULT 0
);
CREATE INDEX tally_day ON rota.tally (queue, day);

CREATE TABLE rota.event (
	id      bigint GENERATED ALWAYS AS IDENTITY,
	xact    xid8     NOT NULL DEFAULT pg_current_xact_id(),
	at      bigint   NOT NULL,
	queue   integer  NOT NULL,
	attempt integer  NOT NULL,
	kind    text     NOT NULL,
	grp     text,
	job     text     NOT NULL,
	jobkind text     NOT NULL,
	error   text     NOT NULL DEFAULT '',
	worker  text     NOT NULL DEFAULT ''
);
CREATE INDEX event_order ON rota.event (queue, id);
CREATE INDEX event_xact ON rota.event (queue, xact);

CREATE TABLE rota.binding (
	created_at bigint NOT NULL,
	queue      integer NOT NULL,
	topic      text COLLATE "C" NOT NULL,
	PRIMARY KEY (topic, queue)
);

CREATE TABLE rota.record (
	version bigint NOT NULL,
	expires bigint,
	space   text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	value   bytea  NOT NULL,
	PRIMARY KEY (space, key)
) WITH (fillfactor = 70);
CREATE INDEX record_expires ON rota.record (expires) WHERE expires IS NOT NULL;

CREATE TABLE rota.counter (
	value   bigint NOT NULL,
	expires bigint,
	space   text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	PRIMARY KEY (space, key)
) WITH (fillfactor = 70);
CREATE INDEX counter_expires ON rota.counter (expires) WHERE expires IS NOT NULL;
