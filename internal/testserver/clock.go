package testserver

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed clockshift/clockshift.c
var clockshiftSource []byte

// shiftedClock is a wall clock for one server, moved by a preloaded library.
type shiftedClock struct {
	object, file string
}

// newShiftedClock builds the library in dir: with a compiler at hand, which
// the race detector needs anyway, that is simpler and surer than shipping one.
func newShiftedClock(dir string, offset time.Duration) (*shiftedClock, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("ClockOffset needs Linux, not %s", runtime.GOOS)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		return nil, fmt.Errorf("ClockOffset needs a C compiler: install one (apt-get install gcc libc6-dev): %w", err)
	}
	source := filepath.Join(dir, "clockshift.c")
	if err := os.WriteFile(source, clockshiftSource, 0o644); err != nil {
		return nil, err
	}
	c := &shiftedClock{object: filepath.Join(dir, "clockshift.so"), file: filepath.Join(dir, "clock")}
	out, err := exec.Command(cc, "-O2", "-fPIC", "-shared", "-o", c.object, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("building clockshift: %w\n%s", err, out)
	}
	return c, c.set(offset)
}

// set moves the clock at once, for a running server too.
func (c *shiftedClock) set(offset time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	word := binary.NativeEndian.AppendUint64(nil, uint64(offset.Microseconds()))
	// One write at one aligned place: the server sees the old offset or the new.
	if _, err := f.WriteAt(word, 0); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func (c *shiftedClock) env() []string {
	return []string{"LD_PRELOAD=" + c.object, "ROTA_TEST_CLOCK=" + c.file}
}
