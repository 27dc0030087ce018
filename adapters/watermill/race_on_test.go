//go:build race

package rotawatermill_test

const raceEnabled = true
