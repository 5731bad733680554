// What all parts of the page share: requests, and elements.

export const $ = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat("en");
export const count = (n, one) => `${number.format(n)} ${one}${n === 1 ? "" : "s"}`;

// The answer to a request; a body is sent as JSON, a Blob as a table.
export async function call(path, body) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const table = body instanceof Blob;
  if (body !== undefined) headers["Content-Type"] = table ? "text/csv" : "application/json";
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined || table ? body : JSON.stringify(body),
  });
  if (answer.status === 401) {
    await askToken(token !== null);
    return call(path, body);
  }
  if (answer.headers.get("content-type")?.startsWith("image/svg")) return answer.text();
  const found = await answer.json();
  if (!answer.ok) {
    const error = new Error(found.error?.message ?? `the server answered ${answer.status}`);
    throw Object.assign(error, { busy: answer.status === 503 });
  }
  return found;
}

// Asks again while the server is busy, for a minute at most: long work should not fail by one crowded moment. Null if
// it was stopped meanwhile.
export async function patiently(ask, run = { stopped: false }) {
  for (let wait = 1; !run.stopped; wait *= 2) {
    try {
      return await ask();
    } catch (error) {
      if (!error.busy || wait > 32) throw error;
    }
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
  return null;
}

let asking = null;
function askToken(wrong) {
  asking ??= new Promise((done) => {
    const dialog = $("ask-token");
    $("token-wrong").hidden = !wrong;
    dialog.addEventListener("close", () => {
      sessionStorage.setItem("token", $("token").value);
      $("token").value = "";
      asking = null;
      done();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Hands a file to the user.
export function save(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
