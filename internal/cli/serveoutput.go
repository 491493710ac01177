package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/serve"
	"github.com/sluice-llm/sluice/internal/term"
)

// printGateway prints the description of a gateway to standard output. If the gateway listens, people read it on standard error.
func printGateway(s *term.Streams, d *serve.Description, asJSON bool) error {
	text := describeServe(d)
	if d.URL != "" {
		for line := range strings.Lines(text) {
			s.Errorf("%s\n", strings.TrimSuffix(line, "\n"))
		}
		text = d.URL + "\n"
	}
	if asJSON {
		return s.JSON(d)
	}
	_, err := fmt.Fprint(s.Out, text)
	return err
}

// describeServe returns the description of a gateway for people. Once the gateway listens, long lists are cut.
func describeServe(d *serve.Description) string {
	var b strings.Builder
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s  %s\n", name, text)
		}
	}
	list := func(names []string) string {
		const most = 8
		if d.URL == "" || len(names) <= most {
			return strings.Join(names, ", ")
		}
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	if d.URL == "" {
		row("listens at", d.Listen)
	} else {
		fmt.Fprintf(&b, "sluice serve listens on %s\n", d.URL)
	}
	row("dashboard", d.Dashboard)
	row("metrics", d.Metrics)
	for i := range d.Upstreams {
		describeUpstream(&d.Upstreams[i], row, list)
	}
	row("aliases", strings.Join(pairs(d.Models), ", "))
	if shared := d.Shared; shared != nil {
		missing := "the instances divide half of each limit among themselves"
		if shared.FailClosed {
			missing = "requests wait"
		}
		row("shared", fmt.Sprintf("limits, through %s; while Redis is unreachable, %s", shared.URL, missing))
	}
	tenants, key := "none: clients need no key", "any text as their key"
	if len(d.Tenants) > 0 {
		tenants, key = list(d.Tenants)+": each client sends the key of its tenant", "a key that `sluice serve key` made"
	}
	row("tenants", tenants)
	if d.URL != "" {
		fmt.Fprintf(&b, "hint: set these variables for clients, and %s:\n", key)
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(d.Env))) {
		fmt.Fprintf(&b, "export %s=%s\n", name, d.Env[name])
	}
	return b.String()
}

// describeUpstream writes the rows of an upstream.
func describeUpstream(up *serve.Upstream, row func(name, text string), list func([]string) string) {
	keys := "no key"
	if len(up.Keys) > 0 {
		keys = "key of " + strings.Join(up.Keys, ", ")
	}
	where := fmt.Sprintf("%s at %s, %s", up.Provider, up.BaseURL, keys)
	if up.Provider == "sim" {
		where = "a simulator in this process, for tests"
	}
	row("upstream", up.Name+": "+where)
	models := "all of " + up.Provider
	switch {
	case up.Models != nil:
		models = list(pairs(up.Models))
	case up.AnyModel:
		models = "any model"
	}
	row("  models", models)
	var limits []string
	for _, d := range slices.Sorted(maps.Keys(up.Limits)) {
		l := up.Limits[d]
		limits = append(limits, fmt.Sprintf("%s %s (%s, %s)", d, prose.Group(l.Value), l.Source, l.From))
	}
	row("  limits", cmp.Or(strings.Join(limits, ", "), "learned from responses"))
}

// pairs writes aliases with the models that they stand for.
func pairs(models map[string]string) []string {
	all := slices.Sorted(maps.Keys(models))
	for i, name := range all {
		if models[name] != name {
			all[i] = name + " -> " + models[name]
		}
	}
	return all
}
