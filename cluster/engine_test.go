package cluster_test

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice/cluster"
)

// onEngines runs a test on an engine in this process and, where SLUICE_TEST_REDIS is the URL of a real one, on that beside it.
// Keys of a test have its name in them, so that several share a real one.
func onEngines(t *testing.T, test func(t *testing.T, url string)) {
	url := os.Getenv("SLUICE_TEST_REDIS")
	t.Run("miniredis", func(t *testing.T) {
		if url != "" {
			t.Parallel()
		}
		test(t, "redis://"+miniredis.RunT(t).Addr())
	})
	if url != "" {
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			test(t, url)
		})
	}
}

// open opens a Cluster that logs to the test, and closes it with that.
func open(t testing.TB, url string) *cluster.Cluster {
	t.Helper()
	return connect(t, cluster.Config{URL: url, Role: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// connect opens a Cluster, and closes it with the test.
func connect(t testing.TB, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// client speaks to an engine itself, to look at what is there and to do it harm.
func client(t testing.TB, url string) rueidis.Client {
	t.Helper()
	o, err := rueidis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.DisableCache, o.ForceSingleClient = true, true
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// dump is what an engine has under these keys at one moment; nil where the engine cannot tell.
func dump(ctx context.Context, c rueidis.Client, keys []string) map[string]string {
	all, err := rueidis.NewLuaScript(`local all = {}
for i, key in ipairs(KEYS) do all[i] = redis.call('DUMP', key) or '' end
return all`).Exec(ctx, c, keys, nil).AsStrSlice()
	if err != nil {
		return nil
	}
	was := map[string]string{}
	for i, key := range keys {
		was[key] = all[i]
	}
	return was
}

// restore sets an engine back to what it had, at one moment.
func restore(ctx context.Context, c rueidis.Client, keys []string, was map[string]string) {
	if was == nil {
		return
	}
	args := make([]string, len(keys))
	for i, key := range keys {
		args[i] = was[key]
	}
	rueidis.NewLuaScript(`for i, key in ipairs(KEYS) do
	redis.call('DEL', key)
	if ARGV[i] ~= '' then redis.call('RESTORE', key, 0, ARGV[i]) end
end`).Exec(ctx, c, keys, args)
}
