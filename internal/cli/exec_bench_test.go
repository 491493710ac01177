package cli_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// BenchmarkCommands runs 1,000 short commands, four at once, by sluice exec with its full state, by xargs and by GNU parallel with
// a log of its jobs; and items through persistent workers. It is to be run once:
//
//	go test -run '^$' -bench Commands -benchtime 1x -count 3 ./internal/cli
func BenchmarkCommands(b *testing.B) {
	const n = 1000
	ways := []struct {
		name string
		args func(bed *bed, items string) []string
	}{
		{"xargs", func(_ *bed, items string) []string {
			return []string{"xargs", "-a", items, "-P", "4", "-n", "1", "true"}
		}},
		{"parallel", func(bed *bed, items string) []string {
			return []string{"parallel", "--will-cite", "-a", items, "-j", "4", "--joblog", bed.path("joblog"), "true"}
		}},
		{"sluice", func(bed *bed, items string) []string {
			return bed.command("--items", items, "--jobs", "4", "--", "true", "{}").Args
		}},
		{"persistent", func(bed *bed, items string) []string {
			return bed.command("--items", items, "--jobs", "4", "--persistent", "--", "agent", "persist").Args
		}},
	}
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			if _, err := exec.LookPath(way.name); err != nil && way.name != "persistent" {
				b.Skip(way.name + " is not there")
			}
			var took time.Duration
			for range b.N {
				bed := newBed(b)
				count := n
				if way.name == "persistent" {
					count = 20 * n
				}
				var rows strings.Builder
				for i := range count {
					fmt.Fprintf(&rows, "{\"n\":%d}\n", i)
				}
				args := way.args(bed, bed.write("items.jsonl", rows.String()))
				start := time.Now()
				if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				took += time.Since(start)
				b.ReportMetric(float64(count*b.N)/took.Seconds(), "commands/s")
			}
		})
	}
}
