"use strict";
const state = document.getElementById("state");
const say = text => { if (state.textContent !== text) state.textContent = text; };
const source = new EventSource("/ui/events");
source.onmessage = event => {
	const parts = JSON.parse(event.data);
	for (const id in parts) {
		if (id === "state") say(parts.state);
		else document.getElementById(id).innerHTML = parts[id]; // escaped where it was made
	}
};
source.onerror = () => say("The gateway does not answer: the numbers are old.");
const admin = document.getElementById("admin");
if (admin) admin.addEventListener("submit", async event => {
	event.preventDefault();
	const action = event.submitter ? event.submitter.value : "";
	const said = document.getElementById("said");
	try {
		const answer = await fetch("/ui/" + action, {
			method: "POST",
			headers: {"X-Sluice-Admin-Key": document.getElementById("key").value, "Content-Type": "application/json"},
			body: action === "limits" ? document.getElementById("limits").value : "",
		});
		said.textContent = (await answer.text()).trim();
	} catch (fault) {
		said.textContent = "The gateway does not answer.";
	}
});
