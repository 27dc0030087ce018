package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// benchmark is one entry of the list.
type benchmark struct {
	name string
	what string // what is measured, and the target
	run  func(ctx context.Context, s settings, r *report) error
}

type settings struct {
	quick bool
}

// pick chooses a size.
func (s settings) pick(full, quick int) int {
	if s.quick {
		return quick
	}
	return full
}

// report gathers what a benchmark measured and prints it as it comes.
type report struct {
	out      io.Writer
	Series   []series  `json:"series"`
	Verdicts []verdict `json:"verdicts"`
}

// series is one figure over all rounds.
type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// verdict holds a figure against its target.
type verdict struct {
	Name   string  `json:"name"`
	Got    float64 `json:"got"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Target string  `json:"target"`
	Met    bool    `json:"met"`
}

func (r *report) missed() bool {
	return slices.ContainsFunc(r.Verdicts, func(v verdict) bool { return !v.Met })
}

// series records and prints one figure's values.
func (r *report) series(name, unit string, values ...float64) {
	r.Series = append(r.Series, series{name, unit, values})
	fmt.Fprintf(r.out, "  %-44s %12s %s  (%s .. %s)\n", name, number(median(values)), unit, number(slices.Min(values)), number(slices.Max(values)))
}

// atLeast and atMost judge the median of the values.
func (r *report) atLeast(name string, target float64, values ...float64) {
	r.judge(name, fmt.Sprintf(">= %g", target), median(values) >= target, values)
}

func (r *report) atMost(name string, target float64, values ...float64) {
	r.judge(name, fmt.Sprintf("<= %g", target), median(values) <= target, values)
}

func (r *report) judge(name, target string, met bool, values []float64) {
	v := verdict{name, median(values), slices.Min(values), slices.Max(values), target, met}
	r.Verdicts = append(r.Verdicts, v)
	word := "met"
	if !met {
		word = "MISSED"
	}
	fmt.Fprintf(r.out, "  = %-42s %12s  (%s .. %s)  target %s: %s\n", name, number(v.Got), number(v.Low), number(v.High), target, word)
}

func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func median(values []float64) float64 {
	return percentile(values, 0.5)
}

// percentile of unsorted values, the nearest rank.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// perSecond is a rate.
func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

// ratios divides pair by pair.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func milliseconds(ds []time.Duration) []float64 {
	out := make([]float64, len(ds))
	for i, d := range ds {
		out[i] = float64(d.Microseconds()) / 1000
	}
	return out
}
