package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/rota-queue/rota/core"
)

//go:embed sql/limit.sql
var limitSQL string

const (
	limitBatch  = 50
	limitGroups = 1_000
)

// postgresLimit compares publishing and draining at the same time with pgbench
// doing the least that could, both on 4 connections.
func postgresLimit(ctx context.Context, s settings, r *report) error {
	rounds, n := s.pick(9, 1), s.pick(40_000, 3_000)
	seconds := s.pick(3, 1)
	return withPostgres(func(server *postgresServer) error {
		if err := server.exec(ctx, limitSQL); err != nil {
			return err
		}
		var least, rota []float64
		for range rounds {
			rate, err := server.pgbench(ctx, seconds)
			if err != nil {
				return err
			}
			least = append(least, rate)
			rate, err = server.publishAndDrain(ctx, n)
			if err != nil {
				return err
			}
			rota = append(rota, rate)
		}
		r.series("pgbench, the least statements, 50 a call", "jobs/s", least...)
		r.series("rota, publish and drain, 1,000 groups", "jobs/s", rota...)
		r.atLeast("rota / least", 0.6, ratios(rota, least)...)
		return nil
	})
}

var tps = regexp.MustCompile(`tps = ([0-9.]+)`)

// pgbench gives jobs a second.
func (s *postgresServer) pgbench(ctx context.Context, seconds int) (float64, error) {
	dir, err := os.MkdirTemp("", "rota-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "limit.pgbench")
	text := fmt.Sprintf("SELECT limit_work(%d);\n", limitBatch)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return 0, err
	}
	clients := strconv.Itoa(postgresConns)
	cmd := exec.CommandContext(ctx, filepath.Join(s.programs, "pgbench"),
		"-n", "-M", "prepared", "-c", clients, "-j", "2", "-T", strconv.Itoa(seconds), "-f", script, s.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	m := tps.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench told no rate:\n%s", out)
	}
	rate, err := strconv.ParseFloat(string(m[1]), 64)
	return rate * limitBatch, err
}

// publishAndDrain lets two publishers and a worker go at the same time, on an
// equal number of connections, and gives jobs a second.
func (s *postgresServer) publishAndDrain(ctx context.Context, n int) (rate float64, err error) {
	err = s.withBackend(ctx, postgresConns, func(b core.Backend) error {
		var all errgroup.Group
		for range 2 {
			all.Go(func() error { return publish(ctx, b, "bench", n/2, limitGroups, limitBatch) })
		}
		all.Go(func() error {
			took, err := drain(ctx, b, "bench", n, drainConcurrency)
			rate = perSecond(n, took)
			return err
		})
		return all.Wait()
	})
	return rate, err
}
