package rotawatermill_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/rota-queue/rota/internal/testserver"
)

func TestMain(m *testing.M) {
	// The suite mostly waits: let its tests overlap on small machines too.
	_ = flag.Set("test.parallel", "32")
	testserver.Main(m, func() error { return goleak.Find() })
}
