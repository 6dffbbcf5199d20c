package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSchemaRefusesWhatIsNoEvent(t *testing.T) {
	s, err := load("../../../docs")
	if err != nil {
		t.Fatal(err)
	}
	const begin = `{"time":"2026-03-01T12:00:00Z","run":"r",`
	for line, valid := range map[string]bool{
		begin + `"kind":"notice","text":"x"}`:                               true,
		begin + `"kind":"notice"}`:                                          false,
		begin + `"kind":"notice","text":"x","stage":"seed"}`:                false,
		begin + `"kind":"notice","text":"x","other":1}`:                     false,
		begin + `"kind":"rumour","text":"x"}`:                               false,
		`{"time":"yesterday","run":"r","kind":"notice","text":"x"}`:         false,
		`{"time":"2026-03-01T12:00:00Z","kind":"notice","text":"x"}`:        false,
		`{"time":"2026-03-01T12:00:00Z","kind":"config_error","text":"x"}`:  true,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{}}`:   false,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":null}`: false,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{"result":"succeeded","exit_code":0,` +
			`"stages":{"ready":1},"seconds":1,"causes":[]}}`: true,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{"result":"splendid","exit_code":0,` +
			`"stages":{"ready":1},"seconds":1,"causes":[]}}`: false,
		begin + `"kind":"run_ended","text":"ok","seconds":1,"ending":{"result":"succeeded","exit_code":0,` +
			`"stages":{"splendid":1},"seconds":1,"causes":[]}}`: false,
	} {
		wrong := s.invalid([]byte(line+"\n"), nil, false)
		if valid != (len(wrong) == 0) {
			t.Errorf("%s: valid: %t, got %q", line, valid, wrong)
		}
	}
	torn := []byte(begin + "\n{}")
	if wrong := s.invalid(torn, nil, true); len(wrong) > 0 {
		t.Errorf("a line of a journal that was cut short: %q", wrong)
	}
	wrong := s.invalid(torn, nil, false)
	if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "1: ") {
		t.Errorf("a printed line that is no JSON: %q", wrong)
	}
}

func TestCheckNamesTheFileAndTheLine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	made := `{"made":"up"}` + "\n"
	script := write("a.txtar", "-- journal.jsonl --\n"+made)
	wrong := write("out.jsonl", made+"{}\n")
	plan := write("plan.jsonl", "{\n}\n")
	journal := write("journal.jsonl", made+"torn\n")
	if err := check("../../../docs", script, []string{journal}); err != nil {
		t.Errorf("a line that the script holds, and one that was cut short: %v", err)
	}
	err := check("../../../docs", script, []string{journal, wrong, plan})
	for _, want := range []string{wrong + ":2: ", plan + ": "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if err := check("../../../docs", script, []string{filepath.Join(dir, "none")}); err == nil {
		t.Error("a file that is not there passes")
	}
}
