package serve

import (
	"log/slog"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/account"
)

func TestSettingsReachTheGateway(t *testing.T) {
	elsewhere := []string{"tenants", "drain_timeout"} // the gateway does not get them in its Config
	t.Setenv(account.ConfigVariable, "")
	logger := slog.New(slog.DiscardHandler)
	accounts, err := account.Open(account.Config{BaseURL: "http://127.0.0.1:1/v1", Purpose: account.Check, Logger: logger, Hide: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Close()
	configOf := func(s *settings) gateway.Config {
		cfg := (&Gateway{}).config(accounts, s)
		cfg.Header, cfg.Base, cfg.Upstreams = nil, nil, nil
		return cfg
	}
	for _, f := range fields() {
		if f.fixed || slices.Contains(elsewhere, f.name) {
			continue
		}
		var s settings
		switch value := f.of(&s.Serve); value.Kind() {
		case reflect.Int64:
			value.SetInt(7)
		case reflect.Slice:
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		case reflect.Map:
			value.Set(reflect.MakeMap(value.Type()))
		default:
			t.Fatalf("no value for %s", f.name)
		}
		if reflect.DeepEqual(configOf(&s), configOf(&settings{})) {
			t.Errorf("the gateway does not get serve.%s", f.name)
		}
	}
}
