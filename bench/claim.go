package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// claimCost times single claims (Max 1) with their settles as single calls, over
// queues that differ only in how many groups are due or blocked.
func claimCost(ctx context.Context, s settings, r *report, b core.Backend) error {
	rounds, claims := s.pick(5, 1), s.pick(1000, 100)
	many, blocked := s.pick(100_000, 5_000), s.pick(10_000, 500)
	queues := []string{"small", "large", "leased", "parked", "paused"}
	for queue, groups := range map[string]int{"small": 1_000, "large": many} {
		if err := publish(ctx, b, queue, 2*groups, groups, 1_000); err != nil {
			return err
		}
	}
	for _, queue := range queues[2:] {
		if err := blockedQueue(ctx, b, queue, blocked); err != nil {
			return err
		}
	}
	medians := map[string][]float64{}
	for range rounds {
		for _, queue := range queues {
			m, err := timeClaims(ctx, b, queue, claims)
			if err != nil {
				return fmt.Errorf("queue %s: %w", queue, err)
			}
			medians[queue] = append(medians[queue], m)
		}
	}
	r.series("claim, 1,000 due groups, median", "us", medians["small"]...)
	r.series(fmt.Sprintf("claim, %d due groups, median", many), "us", medians["large"]...)
	r.atMost("large / small", 1.3, ratios(medians["large"], medians["small"])...)
	for _, queue := range queues[2:] {
		r.series(fmt.Sprintf("claim behind %d %s groups, median", blocked, queue), "us", medians[queue]...)
		r.atMost(queue+" / small", 1.3, ratios(medians[queue], medians["small"])...)
	}
	return nil
}

// blockedQueue makes a queue in which blocked groups, all older, stand in front
// of 1,000 free ones.
func blockedQueue(ctx context.Context, b core.Backend, queue string, blocked int) error {
	jobs := make([]core.NewJob, blocked)
	for i := range jobs {
		jobs[i] = core.NewJob{Queue: queue, Group: fmt.Sprintf("blocked-%d", i)}
	}
	if _, err := b.Publish(ctx, core.PublishRequest{Jobs: jobs}); err != nil {
		return err
	}
	if err := block(ctx, b, queue, blocked); err != nil {
		return err
	}
	return publish(ctx, b, queue, 2_000, 1_000, 1_000)
}

// block makes all groups of the queue unclaimable, in the way its name says.
func block(ctx context.Context, b core.Backend, queue string, groups int) error {
	if queue == "paused" {
		for i := range groups {
			if err := b.ActOnGroup(ctx, queue, fmt.Sprintf("blocked-%d", i), core.PauseGroup); err != nil {
				return err
			}
		}
		return nil
	}
	for taken := 0; taken < groups; {
		res, err := b.Claim(ctx, core.ClaimRequest{Queue: queue, Max: min(1_000, groups-taken), Lease: time.Hour})
		if err != nil {
			return err
		}
		taken += len(res.Leases)
		if queue == "leased" {
			continue
		}
		outcomes := make([]core.Outcome, len(res.Leases))
		for i, l := range res.Leases {
			outcomes[i] = core.Outcome{Lease: l.LeaseRef, Action: core.Retry, Delay: time.Hour, Error: "parked"}
		}
		if _, err := b.Settle(ctx, queue, outcomes); err != nil {
			return err
		}
	}
	return nil
}

// timeClaims gives the median time of a claim in microseconds. Each claimed group
// is released, so the queue stays as it is.
func timeClaims(ctx context.Context, b core.Backend, queue string, n int) (float64, error) {
	took := make([]float64, n)
	for i := range took {
		begin := time.Now()
		res, err := b.Claim(ctx, core.ClaimRequest{Queue: queue, Max: 1, Lease: time.Hour})
		took[i] = float64(time.Since(begin).Nanoseconds()) / 1000
		if err != nil {
			return 0, err
		}
		if len(res.Leases) != 1 {
			return 0, fmt.Errorf("a claim found %d groups", len(res.Leases))
		}
		if _, err := b.Settle(ctx, queue, []core.Outcome{{Lease: res.Leases[0].LeaseRef, Action: core.Release}}); err != nil {
			return 0, err
		}
	}
	return median(took), nil
}
