// LaTeX's names, and the characters they stand for.

function named(text) {
  const words = text.split(/\s/).filter(Boolean);
  const found = {};
  for (let at = 0; at < words.length; at += 2) found[words[at]] = words[at + 1];
  return found;
}

export const SYMBOLS = {
  ...named(`
    alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ
    lambda λ mu μ nu ν xi ξ pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ
    chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
    hbar ℏ ell ℓ Re ℜ Im ℑ aleph ℵ wp ℘ imath ı jmath ȷ partial ∂ nabla ∇ infty ∞ emptyset ∅ varnothing ∅
    forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ land ∧ wedge ∧ lor ∨ vee ∨ in ∈ notin ∉ ni ∋ subset ⊂
    supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ cup ∪ cap ∩ setminus ∖ sqcup ⊔ sqcap ⊓ uplus ⊎
    pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ star ⋆ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙
    leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠ equiv ≡ sim ∼ simeq ≃ approx ≈ cong ≅ propto ∝ ll ≪ gg ≫ doteq ≐
    leqslant ⩽ geqslant ⩾ prec ≺ succ ≻ preceq ⪯ succeq ⪰ mid ∣ nmid ∤ parallel ∥ perp ⊥ models ⊨
    vdash ⊢ top ⊤ bot ⊥ angle ∠ triangle △ square □ Box □ blacksquare ■ qed ∎ degree ° prime ′
    to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔
    implies ⟹ impliedby ⟸ iff ⟺ mapsto ↦ longrightarrow ⟶ longleftarrow ⟵ longmapsto ⟼ uparrow ↑
    downarrow ↓ Uparrow ⇑ Downarrow ⇓ nearrow ↗ searrow ↘ hookrightarrow ↪ rightharpoonup ⇀
    rightleftharpoons ⇌ leadsto ⇝ ldots … dots … cdots ⋯ vdots ⋮ ddots ⋱ dotsc … dotsb ⋯
    sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂
    bigvee ⋁ bigwedge ⋀ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lvert | rvert | vert |
    lVert ‖ rVert ‖ Vert ‖ lbrace { rbrace } lbrack [ rbrack ] backslash \\ therefore ∴ because ∵
    checkmark ✓ dagger † ddagger ‡ S § P ¶ pounds £ copyright © amalg ⨿ surd √ flat ♭ natural ♮ sharp ♯
    bigcirc ◯ diamond ⋄ lt < gt > colon : cdotp · mho ℧ eth ð
  `),
  "{": "{",
  "}": "}",
  "|": "‖",
  "%": "%",
  $: "$",
  "#": "#",
  "&": "&",
  _: "_",
};

export const LIMITS = new Set(
  "sum prod coprod bigcup bigcap bigoplus bigotimes bigvee bigwedge".split(" "),
);

// Functions by their names; true: what stands below them stands under them.
export const FUNCTIONS = {};
for (const name of ("sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp dim " +
  "ker deg arg hom mod bmod rank tr sgn erf").split(" ")) {
  FUNCTIONS[name] = false;
}
for (const name of "lim limsup liminf max min sup inf det gcd lcm Pr argmax argmin".split(" ")) {
  FUNCTIONS[name] = true;
}

export const SPACES = {
  ",": "0.17em", ":": "0.22em", ">": "0.22em", ";": "0.28em", " ": "0.33em", "!": "-0.17em",
  quad: "1em", qquad: "2em", enspace: "0.5em", thinspace: "0.17em",
};

// The mark, and whether it stands below.
export const ACCENTS = {
  hat: ["^", false], widehat: ["^", false], bar: ["¯", false], overline: ["¯", false],
  tilde: ["~", false], widetilde: ["~", false], vec: ["→", false], overrightarrow: ["→", false],
  overleftarrow: ["←", false], dot: ["˙", false], ddot: ["¨", false], acute: ["´", false],
  grave: ["`", false], breve: ["˘", false], check: ["ˇ", false], mathring: ["˚", false],
  underline: ["_", true], overbrace: ["⏞", false], underbrace: ["⏟", true],
};
export const ARROWS = new Set(["overrightarrow", "overleftarrow"]);

export const FONTS = {
  mathbb: "double", mathbf: "bold", boldsymbol: "bold", bm: "bold", mathrm: "upright",
  mathcal: "script", mathscr: "script", mathfrak: "fraktur", mathsf: "upright", mathtt: "upright",
  mathit: "upright", mathop: "upright", mathbin: "upright", mathrel: "upright",
};

// Where the alphabets begin, and the letters that had places before those did.
const ALPHABETS = {
  double: [0x1d538, 0x1d552, 0x1d7d8],
  bold: [0x1d400, 0x1d41a, 0x1d7ce],
  script: [0x1d49c, 0x1d4b6, 0],
  fraktur: [0x1d504, 0x1d51e, 0],
};
const OLDER = {
  double: named("C ℂ H ℍ N ℕ P ℙ Q ℚ R ℝ Z ℤ"),
  script: named("B ℬ E ℰ F ℱ H ℋ I ℐ L ℒ M ℳ R ℛ e ℯ g ℊ o ℴ"),
  fraktur: named("C ℭ H ℌ I ℑ R ℜ Z ℨ"),
};

export function styled(text, variant) {
  const starts = ALPHABETS[variant];
  if (!starts) return text;
  return [...text].map((char) => OLDER[variant]?.[char] ?? moved(char, starts)).join("");
}

function moved(char, [upper, lower, digit]) {
  if (char >= "A" && char <= "Z") return String.fromCodePoint(upper + char.charCodeAt(0) - 65);
  if (char >= "a" && char <= "z") return String.fromCodePoint(lower + char.charCodeAt(0) - 97);
  if (digit && char >= "0" && char <= "9") return String.fromCodePoint(digit + char.charCodeAt(0) - 48);
  return char;
}
