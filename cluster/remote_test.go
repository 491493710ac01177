package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/provider"
)

func TestACallThatIsHandedOverWhileARunEndsIsTakenBackToo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	at, err := cluster.Open(ctx, cluster.Config{URL: "redis://" + miniredis.RunT(t).Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	remote := cluster.NewRemote(cluster.JobConfig{Name: t.Name()})
	if err := remote.Start(ctx, at); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	close(ended)
	for n := 1; n <= 2; n++ { // the second comes when the first has been taken back
		task := &batch.Task{ID: "a", Number: n, Model: "m", Endpoint: provider.ChatCompletions, Body: []byte("{}"), Withdrawn: ended}
		if a, err := remote.Do(ctx, task); !errors.Is(err, batch.ErrWithdrawn) {
			t.Fatalf("call %d, which no worker has: %+v, %v", n, a, err)
		}
	}
	if err := remote.Close(ctx, true); err != nil {
		t.Fatal(err)
	}
}

func TestARunThatIsDoneDoesNotWaitForEverForAnEngineThatIsGone(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	at, err := cluster.Open(t.Context(), cluster.Config{URL: "redis://" + m.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	remote := cluster.NewRemote(cluster.JobConfig{Name: t.Name()})
	if err := remote.Start(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	m.Close()
	ended := make(chan error, 1)
	go func() { ended <- remote.Close(t.Context(), true) }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "run the same command again") {
			t.Errorf("without the engine: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for ever")
	}
}
