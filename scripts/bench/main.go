// Command bench writes the charts and tables of docs/benchmarks.md from docs/benchmarks/data.tsv. With the argument
// measure, it measures the random worlds first.
package main

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/internal/chart"
	"github.com/sluice-llm/sluice/internal/worlds"
	"github.com/sluice-llm/sluice/internal/worlds/gated"
)

const page, data = "docs/benchmarks.md", "docs/benchmarks/data.tsv"

func main() {
	text := strings.TrimSpace(string(must(os.ReadFile(data))))
	if slices.Equal(os.Args[1:], []string{"measure"}) {
		text = measure() + text[strings.Index(text, "\n\ncases\t"):]
		write(data, text+"\n")
	}
	groups := make(map[string][]string) // lines by name: date, commit, machine and command; column names; figures
	for group := range strings.SplitSeq(text, "\n\n") {
		name, lines, _ := strings.Cut(group, "\t")
		groups[name] = strings.Split(lines, "\n")
	}
	draw("docs/benchmarks/worlds.svg", curves(groups["quantiles"][2:]))
	draw("docs/benchmarks/cases.svg", bars("constant limits", groups["cases"][2:8]), bars("errors and changes", groups["cases"][8:]))
	region := regexp.MustCompile(`(?s)<!--(\w+)-->\n\n.*?\n\n.*?\n`)
	write(page, region.ReplaceAllStringFunc(string(must(os.ReadFile(page))), func(old string) string {
		name := region.FindStringSubmatch(old)[1]
		g, source := groups[name], strings.Split(groups[name][0], "\t")
		table := slices.Insert(slices.Clone(g[1:]), 1, strings.Repeat("|---", 1+strings.Count(g[1], "\t"))[1:])
		return fmt.Sprintf("<!--%s-->\n\n%s\n\n`%s`, %s.\n", name, strings.ReplaceAll(strings.Join(table, "\n"), "\t", " | "), source[3], source[0])
	}))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal("bench: error: ", err)
	}
	return value
}

func write(name, text string) { must(0, os.WriteFile(name, []byte(text), 0o644)) }

// measure plays 300 random worlds and returns two groups. A world with an item that was given up is incomplete and has no time.
func measure() string {
	source := "\t" + string(must(exec.Command("sh", "-c", `printf '%s\t%s\t%s cores, %s\t%s' \
		$(date -u +%F) $(git rev-parse --short=10 HEAD) $(nproc) $(go env GOVERSION) 'go run ./scripts/bench measure'`).Output()))
	table := "worlds" + source + "\nclient\tcomplete\t50 %\t90 %\t100 %\t429s"
	quantiles := "quantiles" + source + "\nclient\t5 % within, 10 % within, and so forth"
	for _, name := range []string{"sluice", "aimd", "sdk10", "sdk50", "tenacity"} {
		maker := worlds.Loops()[name].Maker
		if name == "sluice" {
			maker = gated.Client
		}
		var times []float64
		var rejected []int
		for _, s := range worlds.Survey(worlds.Random, 1, 300, "", maker) {
			if s.Failed+s.GivenUp+s.Unended > 0 {
				s.Ratio = math.Inf(1)
			}
			times, rejected = append(times, s.Ratio), append(rejected, s.Rejected)
		}
		slices.Sort(times)
		slices.Sort(rejected)
		complete, _ := slices.BinarySearch(times, math.Inf(1))
		table += fmt.Sprintf("\n%s\t%d\t%.2f×\t%.2f×\t%.2f×\t%d", name, complete, times[149], times[269], times[299], rejected[149])
		quantiles += "\n" + name
		for i := 14; i < 300; i += 15 {
			quantiles += fmt.Sprintf("\t%.2f×", times[i])
		}
	}
	return strings.ReplaceAll(table+"\n\n"+quantiles, "+Inf×", "–")
}

// curves draws the share of worlds that are complete within a time.
func curves(lines []string) *chart.Panel {
	p := &chart.Panel{Title: "Worlds complete within a multiple of the optimum", X: chart.Axis{Max: 5, Unit: "×"}, Y: chart.Axis{Max: 100, Unit: "%"}}
	for i, line := range lines {
		name, times, _ := strings.Cut(line, "\t")
		share, points := 0.0, []chart.Point{{X: 1}}
		for time := range strings.SplitSeq(strings.ReplaceAll(times, "–", "5"), "\t") {
			if x := must(strconv.ParseFloat(strings.TrimSuffix(time, "×"), 64)); x < p.X.Max {
				share += 5
				points = append(points, chart.Point{X: x, Y: share})
			}
		}
		p.Marks = append(p.Marks, chart.Mark{Name: name, Colour: chart.Colour(i), Points: append(points, chart.Point{X: p.X.Max, Y: share})})
	}
	return p
}

// bars draws the time above the optimum of each case.
func bars(title string, lines []string) *chart.Panel {
	p := &chart.Panel{Title: "Time above the optimum: " + title, X: chart.Axis{Max: 20, Unit: "%"}, Y: chart.Axis{Max: float64(len(lines))}, Marks: []chart.Mark{{Boxes: true}}}
	for i, line := range lines {
		name, time, _ := strings.Cut(line, "\t")
		x, y := 100*(must(strconv.ParseFloat(strings.TrimSuffix(time, "×"), 64))-1), float64(len(lines)-i)
		p.Y.Ticks = append(p.Y.Ticks, chart.Tick{Value: y - 0.5, Label: fmt.Sprintf("%s, %.1f %%", name, x)})
		p.Marks[0].Points = append(p.Marks[0].Points, chart.Point{Y: y - 0.25}, chart.Point{X: x, Y: y - 0.75})
	}
	return p
}

func draw(name string, panels ...*chart.Panel) {
	var svg bytes.Buffer
	must(0, chart.Write(&svg, panels...))
	write(name, svg.String())
}
