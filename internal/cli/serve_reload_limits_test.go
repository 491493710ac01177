//go:build unix

package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// Each reading of the settings changes the slots, under a load that always wants more: they are used at once, none
// is lost, and no call is.
func TestLimitsChangeAtOnceUnderLoad(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel() // it mostly waits
	provider := &busy{took: 20 * time.Millisecond, open: make(map[string]int), most: make(map[string]int)}
	web := httptest.NewServer(provider)
	defer web.Close()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.key"), "the-key-of-the-upstream")
	settings := func(slots int) {
		put(t, filepath.Join(dir, "sluice.yaml"), fmt.Sprintf("upstreams: [{name: a, provider: openai-compatible, base_url: '%s/v1', key_file: a.key, models: [m], limits: {rpm: 1000000, concurrency: %d}}]", web.URL, slots))
	}
	settings(4)
	g := startGateway(t, dir, "--config", "sluice.yaml")
	done, rest := g.load(t)
	for i := range suite.Size(5, 20) {
		slots := []int{1, 12, 3, 7, 2}[i%5]
		settings(slots)
		g.cmd.Process.Signal(syscall.SIGHUP)
		await(t, "the settings to be read", func() bool { return strings.Count(g.stderr.String(), "settings re-read: ") > i }, g.stderr)
		await(t, "calls that had a slot before to end", func() bool {
			return !slices.ContainsFunc(scrapeMetrics(t, g.local(t)+"/metrics"), func(s series) bool { return s.name == "sluice_in_flight" && int(s.value) > slots })
		})
		provider.forget()
		before := done.Load()
		await(t, "calls to end", func() bool { return done.Load() >= before+24 })
		most := provider.forget()
		await(t, "all slots to be used", func() bool { // at once, but on a busy machine
			most = max(most, provider.forget())
			return most >= slots
		})
		if most > slots {
			t.Errorf("reading %d: %d calls were open at once, of %d that may be", i+1, most, slots)
		}
	}
	rest()
	resp, err := http.Get(g.local(t) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if left := regexp.MustCompile(`(?m)^sluice_(gateway_open|gateway_waiting|in_flight|waiting)\{.*\} [1-9].*$`).FindAllString(string(text), -1); len(left) > 0 || !strings.Contains(string(text), "sluice_in_flight") {
		t.Errorf("after all calls there are %q", left)
	}
	g.stop(t)
	t.Logf("%d calls during %d readings", done.Load(), suite.Size(5, 20))
}

// forget returns how many were open at once since it was called last.
func (b *busy) forget() (most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, n := range b.most {
		most = max(most, n)
		b.most[key] = b.open[key]
	}
	return most
}
