package main

func benchmarks() []benchmark {
	return append([]benchmark{
		{"redis-drain", "core worker, 1,000 groups, beside one stock asynq server (no groups), same Redis, concurrency 32: at least 5 times", redisDrain},
		{"redis-publish", "publish in batches beside single enqueues of asynq, same Redis: at least 3 times", redisPublish},
		{"redis-claim", "claim and settle at 1,000 and 100,000 due groups: at most 1.3 times; 10,000 blocked groups in front change nothing", redisClaim},
		{"redis-latency", "publish to start on an idle worker: median under 10 ms, without busy polling", redisLatency},
		{"redis-fairness", "one group with 50,000 jobs and 99 with a few; a stream of new groups", redisFairness},
		{"redis-recovery", "kill -9 of a worker process: its groups run elsewhere within lease + 1 s", redisRecovery},
		{"redis-limit", "the least Lua that could do the work, and the core worker's share of it", redisLimit},
	}, postgresBenchmarks()...)
}
