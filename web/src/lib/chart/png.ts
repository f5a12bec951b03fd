/** A drawing as PNG: its SVG, painted by the browser at twice the size. */

import type { Drawing } from "./draw";
import { toSvg } from "./svg";

export async function toPng(drawing: Drawing, scale = 2): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(toSvg(drawing))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = drawing.width * scale;
  canvas.height = drawing.height * scale;
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture was made"))), "image/png"));
}
