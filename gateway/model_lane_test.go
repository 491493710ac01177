package gateway_test

import (
	"net/http"
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func TestTheModelOfAnAliasHasALaneOfItsOwn(t *testing.T) {
	const ours = "gpt-4o-ours" // which no table has
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) { whole(w, chatAnswer) }, func(s *setting) {
		s.upstream.Provider, _ = provider.Lookup("openai")
		s.upstream.Models = nil
		s.Models = map[string]string{"small": ours}
	})
	for i := range 201 {
		post(t, front.URL+"/v1/chat/completions", `{"model":"gpt-4o-made-up-`+string(rune('0'+i))+`"}`)
	}
	post(t, front.URL+"/v1/chat/completions", `{"model":"small"}`)
	for _, l := range x.scheduler.Snapshot().Lanes {
		if l.Lane == ours {
			return
		}
	}
	t.Error("the model shares a lane with models that clients made up")
}
