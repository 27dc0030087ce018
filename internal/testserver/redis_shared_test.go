package testserver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestSharedRedisIsOneServer(t *testing.T) {
	t.Parallel()
	a, b := SharedRedis(t), SharedRedis(t)
	if a != b {
		t.Errorf("two servers: %s and %s", a.URL(), b.URL())
	}
	ctx := context.Background()
	key := UniqueName(t)
	client := a.Client(t)
	if err := client.Set(ctx, key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Del(ctx, key).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestUniqueName(t *testing.T) {
	t.Parallel()
	t.Run("With spaces, {braces} and a name of some considerable length", func(t *testing.T) {
		a, b := UniqueName(t), UniqueName(t)
		if a == b || len(a) > 60 || strings.Trim(a, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q and %q", a, b)
		}
	})
}

func init() {
	// A process of its own, because a process has one shared server.
	RegisterChild("shared-given", func() {
		server, err := openSharedRedis()
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println("url", server.URL())
	})
	RegisterChild("shared-own", func() {
		code := runMain(runFunc(func() int {
			server, err := openSharedRedis()
			if err != nil {
				panic(err)
			}
			fmt.Println(server.Addr())
			fmt.Println(sharedRedis.dir)
			return 0
		}), nil)
		fmt.Println("code", code)
		select {}
	})
}

type runFunc func() int

func (f runFunc) Run() int { return f() }

func TestSharedRedisTakesTheGivenServer(t *testing.T) {
	t.Parallel()
	s := Redis(t, Password("secret"))
	for given, want := range map[string]string{
		s.URL():                            "url " + s.URL(),
		"redis://" + s.Addr():              "error the server that ROTA_TEST_REDIS names does not answer",
		"redis://" + loopback(FreePort(t)): "error the server that ROTA_TEST_REDIS names does not answer",
		"http://127.0.0.1":                 "error ROTA_TEST_REDIS: ",
	} {
		c := Child(t, "shared-given", "ROTA_TEST_REDIS="+given)
		if got, _ := c.Next(); !strings.HasPrefix(got, want) {
			t.Errorf("ROTA_TEST_REDIS=%s: %q, want %q", given, got, want)
		}
	}
}

func TestSharedRedisIsStoppedByMain(t *testing.T) {
	t.Parallel()
	c := Child(t, "shared-own", "ROTA_TEST_REDIS=")
	addr, _ := c.Next()
	dir, _ := c.Next()
	if code, _ := c.Next(); code != "code 0" {
		t.Fatalf("said %q", code)
	}
	if err := refuses(addr); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("folder %s is left: %v", dir, err)
	}
}
