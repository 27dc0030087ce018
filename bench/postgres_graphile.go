package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

//go:embed graphile
var graphileFiles embed.FS

// postgresGraphile alternates graphile-worker, with a named queue for each group
// and tuned as its documentation says, and rota's worker.
func postgresGraphile(ctx context.Context, s settings, r *report) error {
	dir, err := installGraphile(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rounds, n := s.pick(3, 1), s.pick(20_000, 2_000)
	return withPostgres(func(server *postgresServer) error {
		for _, block := range []int{20, 1} {
			if err := graphileRounds(ctx, server, r, dir, rounds, n, block); err != nil {
				return err
			}
		}
		return nil
	})
}

func graphileRounds(ctx context.Context, server *postgresServer, r *report, dir string, rounds, n, block int) error {
	var peer, late, rota []float64
	for range rounds {
		g, err := graphileDrain(ctx, dir, server.url, n, block)
		if err != nil {
			return err
		}
		peer, late = append(peer, float64(n)/g.Seconds), append(late, 100*float64(g.Late)/float64(n))
		took, err := server.blocksRound(ctx, n, block)
		if err != nil {
			return err
		}
		rota = append(rota, perSecond(n, took))
	}
	what := fmt.Sprintf("%d jobs per group", block)
	r.series("graphile-worker, "+what, "jobs/s", peer...)
	r.series("  of them out of order", "%", late...)
	r.series("rota, "+what+", all in order", "jobs/s", rota...)
	if block > 1 {
		r.atLeast("rota / graphile-worker, "+what, 3, ratios(rota, peer)...)
	} else {
		r.atLeast("rota / graphile-worker, "+what, 0.7, ratios(rota, peer)...)
	}
	return nil
}

// installGraphile puts the peer into a temporary folder.
func installGraphile(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "rota-graphile-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "drain.mjs"} {
		text, err := graphileFiles.ReadFile("graphile/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return dir, err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("npm install of graphile-worker (Node.js and npm are needed): %w\n%s", err, out)
	}
	return dir, nil
}

type graphileResult struct {
	Seconds float64 `json:"seconds"`
	Late    int     `json:"late"`
}

func graphileDrain(ctx context.Context, dir, url string, n, block int) (res graphileResult, err error) {
	cmd := exec.CommandContext(ctx, "node", "drain.mjs", url, strconv.Itoa(n), strconv.Itoa(block), strconv.Itoa(postgresConns))
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return res, fmt.Errorf("graphile-worker: %w", err)
	}
	return res, json.Unmarshal(out, &res)
}

// blocksRound publishes the jobs of each group in one go, and drains them; a job
// that begins after a later one of its group is an error.
func (s *postgresServer) blocksRound(ctx context.Context, n, block int) (took time.Duration, err error) {
	err = s.withBackend(ctx, postgresConns, func(b core.Backend) error {
		for from := 0; from < n; from += 1_000 {
			jobs := make([]core.NewJob, min(1_000, n-from))
			for i := range jobs {
				jobs[i] = core.NewJob{
					Queue: "bench", Kind: "bench", Group: fmt.Sprintf("group-%d", (from+i)/block),
					Payload: []byte(strconv.Itoa(from + i)),
				}
			}
			if _, err := b.Publish(ctx, core.PublishRequest{Jobs: jobs}); err != nil {
				return err
			}
		}
		var o order
		took, err = drainWith(ctx, b, "bench", n, drainConcurrency, o.handle)
		return err
	})
	return took, err
}

// order checks that the jobs of each group begin in order.
type order struct {
	mu     sync.Mutex
	latest map[string]int
}

func (o *order) handle(t *worker.Task) error {
	n, err := strconv.Atoi(string(t.Job.Payload))
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.latest == nil {
		o.latest = make(map[string]int)
	}
	if last, ok := o.latest[t.Job.Group]; ok && n <= last {
		return fmt.Errorf("job %d of %s began after job %d", n, t.Job.Group, last)
	}
	o.latest[t.Job.Group] = n
	return nil
}
