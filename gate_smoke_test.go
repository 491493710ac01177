package sluice_test

import (
	"context"
	"testing"

	"github.com/sluice-llm/sluice"
	"golang.org/x/sync/semaphore"
)

func BenchmarkAcquireRelease(b *testing.B) {
	s, _ := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 1e9, TPM: 1e12, Concurrent: 64}})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, err := s.Acquire(ctx, sluice.Call{Tenant: "a", Cost: sluice.Cost{Input: 100, MaxOutput: 100}})
		if err != nil {
			b.Fatal(err)
		}
		p.Release(sluice.Outcome{})
	}
}

func BenchmarkSem(b *testing.B) {
	s := semaphore.NewWeighted(8)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		s.Acquire(ctx, 1)
		s.Release(1)
	}
}
