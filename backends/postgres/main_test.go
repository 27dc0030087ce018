package rotapostgres

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rota-queue/rota/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.Main(m, func() error { return goleak.Find() })
}
