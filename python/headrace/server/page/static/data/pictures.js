// Pictures that are to be sent: made smaller where they are large, in a form that servers read.

const READ = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MAX_SIDE = 2048; // pixels
const MAX_BYTES = 3 << 20;

// {name, blob}. Throws Error, in words, for what is no picture.
export async function picture(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name || "This"} is no picture that the browser can read.`);
  }
  const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  const name = file.name || "picture";
  if (scale === 1 && file.size <= MAX_BYTES && READ.includes(file.type)) return { name, blob: file };
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const png = await made(canvas, "image/png");
  return { name, blob: png.size <= MAX_BYTES ? png : await made(canvas, "image/jpeg") };
}

function made(canvas, type) {
  return new Promise((resolve) => {
    canvas.toBlob(resolve, type, 0.92);
  });
}

export function pictureFiles(transfer) {
  return [...(transfer?.files ?? [])].filter((file) => file.type.startsWith("image/"));
}

export function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("A picture can't be read any more."));
    reader.readAsDataURL(blob);
  });
}

export function fromDataUrl(url) {
  const [head, data] = url.split(",", 2);
  const type = head.slice(5).split(";")[0];
  if (!head.startsWith("data:image/") || !READ.includes(type)) throw new Error("no picture");
  return new Blob([Uint8Array.from(atob(data), (char) => char.charCodeAt(0))], { type });
}

export function thumbnail({ name, blob }, className) {
  const url = URL.createObjectURL(blob);
  const image = document.createElement("img");
  image.className = className;
  image.alt = name;
  image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  image.src = url;
  return image;
}
