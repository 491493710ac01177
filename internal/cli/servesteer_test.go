package cli

import (
	"io"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

// accountsOf are accounts with one upstream, whose Scheduler they know.
func accountsOf(t *testing.T, s *sluice.Scheduler) *accounts {
	t.Helper()
	ups, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: []provider.Upstream{{
		Name: "one", Provider: provider.Provider{Name: "one", BaseURL: "http://127.0.0.1:1"}, Scheduler: s,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	a := &accounts{tuning: newTuning(), upstreams: &upstreams{Upstreams: ups}}
	if err := a.tuning.add(provider.Provider{Name: "one"}, "", s, sluice.Config{}); err != nil {
		t.Fatal(err)
	}
	return a
}

// The admin's word comes while settings are read again: it holds for the new ones, whatever the old ones were told.
func TestWhatTheAdminSaysDuringAReloadHolds(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, err := sluice.New(sluice.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			old, next := accountsOf(t, s), accountsOf(t, s)
			r := &serving{
				s: newStreams(nil, nil, io.Discard, io.Discard), o: &serveOptions{quiet: true}, watch: &watch{}, accounts: old,
				traffic: gateway.NewTraffic(gateway.TrafficConfig{}), steering: make(chan struct{}, 1),
			}
			if r.gateway, err = gateway.New(r.config(old, &r.settings)); err != nil {
				t.Fatal(err)
			}
			if err := r.hold(!paused); err != nil {
				t.Fatal(err)
			}
			next.tuning.begin() // the exchange waits for its turn
			exchanged, told := make(chan error, 1), make(chan error, 1)
			go func() {
				_, _, err := r.exchange(next, &serveSettings{})
				exchanged <- err
			}()
			synctest.Wait()
			go func() { told <- r.hold(paused) }()
			synctest.Wait()
			next.tuning.end()
			if err := <-exchanged; err != nil {
				t.Fatal(err)
			}
			if err := <-told; err != nil {
				t.Fatal(err)
			}
			if got := r.present().held(); got != paused {
				t.Errorf("the last word was paused=%v, and it is %v", paused, got)
			}
		})
	}
}
