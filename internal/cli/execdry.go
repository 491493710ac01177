package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// dry prints what a run would run.
func (o *execOptions) dry(s *term.Streams, cfg proc.Config) error {
	var lines strings.Builder
	p, err := proc.ReadPreview(cfg, func(item proc.Planned) error {
		if o.watch.json {
			b, err := json.Marshal(item)
			lines.Write(append(b, '\n'))
			return err
		}
		words := make([]string, len(item.Command))
		for i, word := range item.Command {
			words[i] = term.Quote(word)
		}
		fmt.Fprintln(&lines, term.Escape(strings.Join(words, " ")))
		return nil
	})
	if err != nil {
		return o.explain(err)
	}
	if _, err := s.Out.Write([]byte(lines.String())); err != nil {
		return err
	}
	s.Errorf("%s of %s remaining: nothing was run\n", prose.Group(p.Remaining), prose.Count(p.Items, "item"))
	for _, b := range p.Blocked {
		s.Row("blocked", "%s", b)
	}
	return nil
}
