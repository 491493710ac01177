package cluster_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"

	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice/cluster"
)

// onEngines runs a test in a bubble, on a Redis in memory, and where SLUICE_TEST_REDIS is the URL of a real one, also on that, in
// real time. Keys of a test have its name in them, so that several tests share a real one.
func onEngines(t *testing.T, test func(t *testing.T, at *cluster.Site)) {
	t.Run("memory", func(t *testing.T) { inMemory(t, test) })
	if url := os.Getenv("SLUICE_TEST_REDIS"); url != "" {
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			test(t, cluster.SiteAt(url))
		})
	}
}

// inMemory runs a test in a bubble, on a Redis in memory.
func inMemory(t *testing.T, test func(t *testing.T, at *cluster.Site)) {
	synctest.Test(t, func(t *testing.T) { test(t, cluster.NewSite(t)) })
}

// open opens a Cluster that logs to the test, and closes it with that.
func open(t testing.TB, at *cluster.Site) *cluster.Cluster {
	t.Helper()
	return openAs(t, at, cluster.Config{Role: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// openAs opens a Cluster, and closes it with the test.
func openAs(t testing.TB, at *cluster.Site, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	c, err := at.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		at.Restore()
		c.Close()
	})
	return c
}

// connect opens a Cluster by its URL, and closes it with the test.
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
func client(t testing.TB, at *cluster.Site) rueidis.Client {
	t.Helper()
	c, err := at.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// execute runs a command on an engine itself.
func execute(t testing.TB, at *cluster.Site, words ...string) rueidis.RedisResult {
	t.Helper()
	c, err := at.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := c.Do(context.Background(), c.B().Arbitrary(words...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatal(err)
	}
	return r
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
