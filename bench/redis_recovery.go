package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/rota-queue/rota/backends/redis"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

const victimCommand = "victim"

// redisRecovery kills a worker process that holds 32 groups and times from the
// kill until another worker has started each of their jobs again.
func redisRecovery(ctx context.Context, s settings, r *report) error {
	rounds, lease := s.pick(5, 1), 2*time.Second
	return withRedis(func(server *redisServer) error {
		var over []float64
		for range rounds {
			err := server.withBackend(ctx, func(b core.Backend) error {
				took, err := recoverOnce(ctx, b, server.addr, lease)
				over = append(over, (took - lease).Seconds())
				return err
			})
			if err != nil {
				return err
			}
		}
		r.atMost("slowest group's restart after kill -9, beyond the lease, s", 1, over...)
		return nil
	})
}

func recoverOnce(ctx context.Context, b core.Backend, addr string, lease time.Duration) (time.Duration, error) {
	if err := publish(ctx, b, "bench", drainConcurrency, drainConcurrency, 100); err != nil {
		return 0, err
	}
	victim := exec.CommandContext(ctx, os.Args[0], victimCommand, addr, lease.String())
	out, err := victim.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := victim.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(out)
	for started := 0; started < drainConcurrency && lines.Scan(); started++ {
	}
	restarted := make(chan time.Time, drainConcurrency)
	w, err := worker.New(b, worker.Config{
		Queues: []worker.Queue{{Name: "bench"}}, Concurrency: drainConcurrency, Lease: lease,
		Handler: worker.HandlerFunc(func(context.Context, *worker.Task) error {
			restarted <- time.Now()
			return nil
		}),
	})
	if err != nil {
		return 0, err
	}
	if err := w.Start(ctx); err != nil {
		return 0, err
	}
	defer w.Stop(ctx)
	killed := time.Now()
	if err := victim.Process.Kill(); err != nil {
		return 0, err
	}
	_ = victim.Wait() // killed: it says so
	for range drainConcurrency {
		select {
		case at := <-restarted:
			if at.Before(killed) {
				return 0, fmt.Errorf("a job of a living worker was started again")
			}
		case <-time.After(lease + 10*time.Second):
			return 0, fmt.Errorf("the killed worker's groups did not all come back")
		}
	}
	return time.Since(killed), nil
}

// runVictim is the process to be killed: its handlers say that they have started
// and never end.
func runVictim(ctx context.Context, args []string) int {
	lease, err := time.ParseDuration(args[1])
	if err != nil {
		return 2
	}
	b, err := rotaredis.Open(ctx, "redis://"+args[0], rotaredis.Options{})
	if err != nil {
		return 1
	}
	started := make(chan int)
	w, err := worker.New(b, worker.Config{
		Queues: []worker.Queue{{Name: "bench"}}, Concurrency: drainConcurrency, Lease: lease,
		Handler: worker.HandlerFunc(func(ctx context.Context, _ *worker.Task) error {
			started <- 1
			<-ctx.Done()
			return ctx.Err()
		}),
	})
	if err != nil {
		return 1
	}
	if err := w.Start(ctx); err != nil {
		return 1
	}
	for i := 0; ; i++ {
		select {
		case <-started:
			os.Stdout.WriteString(strconv.Itoa(i) + "\n")
		case <-ctx.Done():
			return 0
		}
	}
}
